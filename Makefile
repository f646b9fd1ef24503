.DEFAULT_GOAL := help
.PHONY: help install test check fast soak projects mutants lint format types size bench benchmarks startup oracle web docs pictures

PARTS = common communication compile config core host importer nn ops validation

help:  ## print this list of targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install:  ## install everything that contributors need, in the tested versions
	pip install -c constraints.txt -e ".[all]"

test:  ## the whole suite
	pytest -n 2 --dist worksteal

check: lint types fast  ## what to run before a commit: lint, types, the architecture and fast tests; about 4 minutes

fast:  ## the architecture, and tests of parts: operators, layers, compiler, importer, config
	pytest -x -n 2 --dist worksteal tests/test_architecture.py tests/test_types.py $(addprefix tests/,$(PARTS)) \
	--ignore=tests/importer/test_kinds.py --ignore=tests/config/test_users_code.py

soak:  ## the long tests: kills at every operation, flipped bits, random examples, hostile input, ONNX's suite, all types
	RUNNER_SOAK=1 pytest -n 2 --dist worksteal $$(grep -rlE '^from (soak|hypothesis) import' tests --include='test_*.py')

projects:  ## the three projects of users on a wheel in a fresh environment, with kills, sweeps, ranks and dumps
	place=$$(mktemp -d) && pip wheel -q --no-deps -w $$place . && python3 -m venv $$place/venv \
	&& $$place/venv/bin/pip install -q -c constraints.txt "$$(echo $$place/*.whl)[images,mpi]" \
	&& RUNNER_SOAK=1 RUNNER_PYTHON=$$place/venv/bin/python pytest -n 2 tests/projects ; status=$$?; rm -rf $$place; exit $$status

mutants:  ## check that the tests find mistakes: 60 seeded one-line mutations, at most 4 may survive
	python tests/mutation/mutants.py

lint:  ## check style without changing files
	ruff check . && ruff format --check .

format:  ## fix style
	ruff check --fix . && ruff format .

types:  ## mypy --strict
	mypy

size:  ## files and lines of code per package, without blank lines, comments and docstrings
	@python tests/support/code_lines.py

PEERS ?=
RESULTS ?= outputs/benchmarks.jsonl
REPEATS ?= 5
peers = $(if $(PEERS),--peer $(foreach peer,$(PEERS),$(firstword $(subst =, ,$(peer)))) --peer-python $(PEERS))
both = --mode graph pynative --threads 1 2 --repeats $(REPEATS) $(peers)

bench:  ## time a step of LeNet in both modes, in turn with the peers of PEERS="torch=/path/python jax=/path/python"
	python benchmarks/step.py lenet5 --mode graph pynative --threads 1 2 $(peers)

benchmarks:  ## measure most figures of BENCHMARKS.md, as JSON lines into RESULTS; PEERS as for bench
	@mkdir -p $(dir $(RESULTS))
	python benchmarks/step.py lenet5 --steps 1000 --sink 0 1000 $(both) > $(RESULTS)
	python benchmarks/step.py lenet5 --batch 256 --sink 0 300 $(both) >> $(RESULTS)
	python benchmarks/step.py resnet18 resnet50 --sink 0 3 $(both) >> $(RESULTS)
	python benchmarks/step.py resnet152 --steps 1 --repeats 1 >> $(RESULTS)
	python benchmarks/growth.py >> $(RESULTS)
	python benchmarks/data.py >> $(RESULTS)
	python benchmarks/interpreter.py >> $(RESULTS)
	python benchmarks/dump.py >> $(RESULTS)
	python benchmarks/profile.py >> $(RESULTS)
	python benchmarks/startup.py >> $(RESULTS)
	python benchmarks/sweep.py -- mode=graph epochs=10 >> $(RESULTS)

startup:  ## time from the start of the process to the first loss
	python benchmarks/startup.py

oracle:  ## compare with PyTorch; the suite skips these tests where torch is missing
	pip install torch==2.13.0 && pytest tests/end_to_end/test_torch.py

web:  ## train in Node and in Chromium, with the losses of Python; needs npm, its registry, and Chromium
	cd examples/node && npm ci
	cd examples/web && npm ci && npm run copy
	pytest tests/examples

docs:  ## build the documentation site into build/site; needs pip install -e ".[docs]"
	python docs/readability.py
	PYTHONPATH=. python docs/diagrams.py build/images
	PYTHONPATH=.:tests/support python docs/screenshots.py build/images
	PYTHONPATH=. mkdocs build --strict
	PYTHONPATH=.:tests/support python docs/overflow.py build/site

pictures:  ## make the diagrams and pictures of docs/images anew, with Chromium
	PYTHONPATH=. python docs/diagrams.py docs/images
	PYTHONPATH=.:tests/support python docs/screenshots.py docs/images
