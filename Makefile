# Shoal: `make help` lists the targets. Everything bootstraps itself into .venv and a per-user cache.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PACKAGES := crds operator router simulator localcluster cli
PYTEST := $(BIN)/python -P -m pytest
# Much of the suite waits. tests/support/shoal_testing/parallel.py says who shares a process; ARGS=-n0 takes one.
PARALLEL := --numprocesses 3 --no-loadscope-reorder
# `make test` has router processes compiled, and what tests import interpreted. These are run the other way round too.
COMPILED_TOO := tests/unit/router_io tests/unit/router_policy $(wildcard tests/property/test_router_*.py) \
  tests/property/test_sse_scanner.py tests/property/test_body_splices.py tests/wire/test_router_build.py
# The long waits of test_router_failures.py are taken once.
INTERPRETED_TOO := $(filter-out %_failures.py,$(wildcard tests/wire/test_router_*.py))

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP): requirements-dev.txt requirements-uv.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python >= 3.11 is missing ($(PYTHON)). Install it (Debian: apt-get install python3.11 python3.11-venv) or name one: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the locked dependencies into $(VENV) (about 20 s)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.txt
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip sync --quiet --require-hashes requirements-dev.txt requirements-uv.txt
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: venv
venv: $(STAMP) ## Make .venv with the locked dependencies

.PHONY: controlplane
controlplane: $(STAMP) ## Build the control plane once into the per-user cache (6-7 minutes, then seconds)
	@$(BIN)/shoal local build

.PHONY: compiled
compiled: $(STAMP) ## Compile the router into build/compiled (1.5 minutes a state of its sources, then at once)
	@$(BIN)/python -P router/build_compiled.py >/dev/null

.PHONY: demo
demo: controlplane ## Local cluster, chart, ModelService, replay, a killed replica, scale out and in (KEEP=1 leaves it running)
	@$(BIN)/shoal demo $(if $(KEEP),--keep)

.PHONY: lint
lint: $(STAMP) ## Ruff, mypy, import-linter, codespell, CRD drift
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/codespell $(PACKAGES) tests docs charts images examples bench *.md Makefile pyproject.toml
	@$(BIN)/shoal crds --check

.PHONY: test
test: controlplane compiled ## Unit, property, golden, wire, real kube-apiserver, chart, end to end; the router compiled
	@$(PYTEST) $(PARALLEL) --router processes $(ARGS)

.PHONY: test-compiled
test-compiled: compiled ## Unit and property tests of the router once more, on its compiled modules
	@$(PYTEST) $(PARALLEL) --router compiled $(COMPILED_TOO) $(ARGS)

.PHONY: test-interpreted
test-interpreted: $(STAMP) ## Wire tests of the router once more, on its sources as they are
	@$(PYTEST) $(PARALLEL) --router interpreted $(INTERPRETED_TOO) $(ARGS)

.PHONY: test-fast
test-fast: $(STAMP) ## Unit, property and golden tests only
	@$(PYTEST) -m "not wire and not apiserver and not chart and not e2e and not engine and not slow" $(ARGS)

.PHONY: test-engine
test-engine: controlplane ## End to end with two real SGLang engines on the CPU (2.7-5.6 GB of packages, about 10 minutes)
	@bash tests/engine/setup_cpu_engine.sh .test-engine
	@$(PYTEST) tests/engine --engine-env .test-engine $(ARGS)

.PHONY: bench
bench: compiled ## Hit rate of the coding-agent replay through four simulated replicas, and the binding's time
	@$(BIN)/python bench/replay_hit_rate.py
	@PYTHONPATH=build/compiled $(BIN)/python bench/router_binding.py

.PHONY: bench-router
bench-router: $(STAMP) ## Data path beside sglang-router, smg, vllm-router and nginx (about 20 minutes; QUICK=1: under 5)
	@$(BIN)/python -m shoal_bench.router $(if $(QUICK),--quick) $(ARGS)

.PHONY: bench-hot-path
bench-hot-path: $(STAMP) ## Where the router's time goes: profiles, flame graphs; needs ptrace (3 minutes; QUICK=1: under one)
	@$(BIN)/python -m shoal_bench.hotpath $(if $(QUICK),--quick) $(ARGS)

.PHONY: bench-routing
bench-routing: $(STAMP) ## Traces through simulated engines behind each router (about 45 minutes, goes on where it was stopped; QUICK=1: under 5)
	@$(BIN)/python -m shoal_bench.routing $(if $(QUICK),--quick) $(ARGS)

.PHONY: bench-slicing
bench-slicing: $(STAMP) ## Warm turns beside long cold prompts, Shoal with and without slices and peers (20 minutes; QUICK=1: under 5)
	@$(BIN)/python -m shoal_bench.slicing $(if $(QUICK),--quick) $(ARGS)

.PHONY: bench-policy
bench-policy: $(STAMP) ## The policy in virtual time: study, constants swept, cross-check (6 minutes; QUICK=1: under two; SHOAL_TRACES=DIR)
	@$(BIN)/python -m shoal_bench.policy $(if $(QUICK),--quick) $(ARGS)

.PHONY: bench-autoscaling
bench-autoscaling: $(STAMP) ## What the scaler does with a step and a wave, in virtual time (2 minutes; QUICK=1: seconds)
	@$(BIN)/python -m shoal_bench.autoscaling $(if $(QUICK),--quick) $(ARGS)

.PHONY: docs
docs: $(STAMP) ## Regenerate what is generated: CRDs, the chart's copy, reference tables
	@$(BIN)/shoal crds

.PHONY: lock
lock: $(STAMP) ## Write the hashed requirement locks anew from pyproject.toml
	@$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --python-version 3.11 --extra dev pyproject.toml -o requirements-dev.txt
	@$(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --python-version 3.11 --extra operator --extra router --extra sim pyproject.toml -o requirements.txt
	@echo uv | $(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --python-version 3.11 - -o requirements-uv.txt
	@bash images/lock.sh

.PHONY: clean
clean: ## Remove .venv and caches of tools (the control plane's cache stays: ~/.cache/shoal)
	@rm -rf $(VENV) .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache .test-engine dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
