# `make` lists the targets. Everything runs from .venv, which `make setup` makes and keeps up to date.
SHELL := /bin/bash
MAKEFLAGS += --no-print-directory
BIN := .venv/bin
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo test soak check coverage static format bench lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## all that running frazil needs; nothing to do takes a second (PYTHON=… names the interpreter)
	@scripts/setup.sh

setup-dev: ## the same, and what the tests need
	@scripts/setup.sh --dev

demo: setup ## start frazil, publish a sample stream, read it back; stays up until Ctrl-C (ONCE=1: ends by itself)
	@exec $(BIN)/frazil demo $(if $(filter-out 0,$(ONCE)),--once)

# The same random choices in every run; `make soak` makes new ones, and its first line says which.
FIXED := PYTHONHASHSEED=0
ifndef SEED
SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
endif

# The tests of a file share what they start, so a file stays with one worker; tests/order.py says the order. Many tests of
# `make test` wait for processes and outages, so it has a worker more than there are processors.
SPREAD := --dist loadfile --no-loadscope-reorder

test: static ## every check and all tests but the long runs, as CI does (ARGS="-k name" goes to pytest; -n 0 for one process)
	$(FIXED) $(BIN)/pytest -n 2 $(SPREAD) -m "not soak" $(ARGS)

soak: setup-dev ## the long runs beside them, and every search at random with a new seed (SEED=… repeats one)
	@echo "SEED=$(SEED)"
	PYTHONHASHSEED=$(SEED) $(BIN)/pytest -m "soak or explore" --hypothesis-profile=explore --hypothesis-seed=$(SEED) $(ARGS)

check: static ## the quick half: the static checks and the tests that start nothing and take little
	$(FIXED) $(BIN)/pytest -n 2 $(SPREAD) -m "not slow" $(ARGS)

coverage: setup-dev ## lines and branches that `make test` reaches, in all processes (the floor is in pyproject.toml)
	rm -rf .coverage && mkdir .coverage
	$(FIXED) $(BIN)/coverage run -m pytest -n 3 $(SPREAD) -m "not soak" $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

static: setup-dev ## format, lint, types and the import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: setup-dev ## rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure ingest, commit, freshness, query and growth, one JSON line each (WHAT=commit for one of them)
	@set -e; for what in $(or $(WHAT),ingest commit freshness query growth); do $(BIN)/frazil bench $$what; done

lock: setup ## write the locks anew from pyproject.toml and requirements*.in (ARGS=--upgrade)
	@scripts/lock.sh $(ARGS)

clean: ## remove what the checks and builds leave behind; .venv and frazil-data stay
	rm -rf build dist .coverage .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .setup.log .setup.lock \
		spark-warehouse metastore_db derby.log *.egg-info
	find frazil tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
