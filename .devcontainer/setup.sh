#!/usr/bin/env bash
# What the container needs beside Python: programs that tests look for, and runner with all that contributors use.
set -euo pipefail
sudo apt-get update
sudo apt-get install -y --no-install-recommends chromium fish graphviz nodejs npm zsh
pip install -c constraints.txt -e ".[all]"
pre-commit install
