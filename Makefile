# make run    run Golden15 (PORT=8000 HOST=127.0.0.1)
# make test   set up, check and test everything
.DEFAULT_GOAL := help
.PHONY: help run sign-in dev check fix test accuracy bench lab long lock

PORT ?= 8000
HOST ?= 127.0.0.1
# Any Python will do here: config/bootstrap.py looks for a recent enough one, and says so if there is none.
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11 python,$(shell command -v $(name))))
VENV := .venv/bin

help:
	@echo "make run       run Golden15; PORT=8000 HOST=127.0.0.1 can be changed"
	@echo "make sign-in   print a fresh sign-in link; USER_NAME=somebody for another person"
	@echo "make test      set up, check and test everything"
	@echo "make lab       install torch into .venv-lab: then make test also runs real training jobs"
	@echo "make long      the tests too long for every change: all hangs of real training jobs, many nodes; 20 minutes, as root"
	@echo "make accuracy  judge all cases of tests/cases (or FOLDER=...) and print how often the verdict is right; beside torch's own tools after make lab"
	@echo "make bench     measure how fast files and readings are judged, beside the tools that people have; 10 minutes, 2 GB in /tmp"
	@echo "make check     only what needs no running: lint, format, types, imports, settings, migrations"
	@echo "make fix       let ruff fix and format"
	@echo "make lock      write the lock files again after a change of requirements"

run:
	@test -n "$(PYTHON)" || { echo "Golden15 needs Python 3.11 or newer, and there is no python3. Install it: apt install python3 python3-venv"; exit 2; }
	@PORT='$(PORT)' HOST='$(HOST)' exec $(PYTHON) config/bootstrap.py run

sign-in:
	@$(VENV)/python manage.py sign_in_link $(USER_NAME)

# Without reading the network when the lock file was installed before.
dev:
	@$(PYTHON) config/bootstrap.py dev

check: dev
	@.ci/check static

fix: dev
	$(VENV)/ruff check --fix .
	$(VENV)/ruff format .

test: dev
	@.ci/check all

accuracy: dev
	@$(VENV)/python -m tests.accuracy $(FOLDER)

bench: dev
	@$(VENV)/python -m tests.bench $(ROWS)

# torch exactly as pinned: from an index with builds for the CPU it has 200 MB, from PyPI it brings gigabytes of CUDA.
lab:
	@test -x .venv-lab/bin/torchrun || { $(PYTHON) -m venv .venv-lab && .venv-lab/bin/python -m pip install -q -r requirements-lab.txt; }

long: dev lab
	$(VENV)/python -m pytest -q -m long tests

COMPILE := $(VENV)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
lock: dev
	$(COMPILE) requirements.txt -o requirements.lock
	$(COMPILE) -c requirements.lock requirements-dev.txt -o requirements-dev.lock
