.DEFAULT_GOAL := help
.PHONY: help install test fast lint format types size bench startup oracle

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install:  ## everything that contributors need, in the tested versions
	pip install -c constraints.txt -e ".[dev]"

test:  ## the whole suite
	pytest

fast:  ## the suite without real processes and real data sets
	pytest -x --ignore=tests/test_cli.py --ignore=tests/dataset

lint:  ## style, without changing anything
	ruff check . && ruff format --check .

format:  ## repair style
	ruff check --fix . && ruff format .

types:  ## mypy --strict
	mypy

size:  ## lines per file, longest first
	@find runner models -name '*.py' | xargs wc -l | sort -rn | head -30

bench:  ## one step of LeNet in both modes; needs the peer's torch in PEER_PYTHON for ratios
	python benchmarks/step.py lenet5 --mode graph pynative --threads 1 2 $(if $(PEER_PYTHON),--peer torch --peer-python $(PEER_PYTHON))

startup:  ## from the start of the process to the first loss
	python benchmarks/startup.py

oracle:  ## the comparison with PyTorch, which the suite skips where torch is missing
	pip install torch==2.13.0 && pytest tests/test_torch.py
