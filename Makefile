# `make` lists what there is. Everything runs in .venv, which the targets create when needed; a second call is quick.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Which TensorFlow, an extra: tf (2.15, with Estimator), tf-latest (the newest that was tried). Each in an environment of its own.
TF ?= tf
VENV := .venv
BIN := $(VENV)/bin
METADATA := pyproject.toml setup.py
ifeq ($(TF),tf)
PYTHONS := python3.11 python3 python3.10 python3.9 /usr/bin/python3.11 /usr/bin/python3
PYTHON_RANGE := (3, 9) <= sys.version_info < (3, 12)
PYTHON_WORDS := 3.9, 3.10 or 3.11 (TensorFlow 2.15 has no other; scripts without tf.estimator: TF=tf-latest)
WITH_TF := tf,tfio,proto
else
PYTHONS := python3.13 python3.12 python3.11 python3.10 python3 /usr/bin/python3
PYTHON_RANGE := (3, 10) <= sys.version_info < (3, 14)
PYTHON_WORDS := 3.10 to 3.13 (TensorFlow 2.21 has no other)
WITH_TF := $(TF),keras2
endif
# Adult census data (a directory with adult.data and adult.test); empty: the example generates its data.
DATA ?=
# Where the demo leaves its run.
DEMO_DIR ?= runs/demo
# Long enough for four changes one after the other; on a machine with many cores take more.
DEMO_STEPS ?= 14000
PYTEST_ARGS ?=
# Whole jobs that tests run at once: two on two cores take two thirds of the time. One is the quietest.
JOBS ?= $(shell test "$$(nproc 2>/dev/null || echo 1)" -gt 1 && echo 2 || echo 1)
AT_ONCE = $(if $(filter-out 1,$(JOBS)),-n $(JOBS) --dist loadgroup)
JOBS_TESTS = tests/cluster tests/slurm tests/chaos tests/compat tests/behaviour
# Their tests leave a TensorFlow server behind each, 50 MB that nothing gives back within a process: 24 GB did not hold them all.
# Those of the examples train.
LARGE_TESTS = tests/unit/elastic tests/unit/keras tests/unit/examples
ELASTIC_ROOMS := $(filter-out %.py %session %__pycache__,$(wildcard tests/unit/elastic/*))
KERAS_TESTS := $(sort $(shell find tests/unit/keras -name 'test_*.py'))
LARGE_PARTS = tests/unit/examples tests/unit/elastic/session '$(ELASTIC_ROOMS)' '$(wordlist 1,5,$(KERAS_TESTS))' '$(wordlist 6,11,$(KERAS_TESTS))' '$(wordlist 12,999,$(KERAS_TESTS))'
KERAS_LATEST = $(addprefix tests/unit/keras/test_,fit.py epochs.py arrays.py own_steps.py counted.py slices.py after_training.py deciding.py)
UNIT_TESTS = -n 2 --dist loadfile
CHAOS_ARGS ?=

.PHONY: help
help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

# --------------------------------------------------------------------------------------------------------- environment

# The first Python of the right version that can make an environment. PYTHON=... overrides the search.
$(BIN)/python:
	@for python in $${PYTHON:-} $(PYTHONS); do
	    $$python -c 'import sys; sys.exit(not $(PYTHON_RANGE))' 2>/dev/null || continue
	    right=$$python
	    $$python -c 'import ensurepip, venv' 2>/dev/null || continue
	    echo "$$python -m venv $(VENV)"
	    rm -rf $(VENV)
	    exec $$python -m venv $(VENV)
	done
	if [[ -n "$${right:-}" ]]; then
	    echo "$$right cannot make a virtual environment: its ensurepip is missing. On Debian and Ubuntu: apt-get install python3-venv" >&2
	else
	    echo "No Python $(PYTHON_WORDS) found. Install one, for example: apt-get install python3.11 python3.11-venv, or say PYTHON=/path/to/python" >&2
	fi
	exit 1

.ONESHELL:

$(VENV)/installed-tf: $(METADATA) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(TF),dashboard,autoscale]'
	touch $@

$(VENV)/installed-test: $(METADATA) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,$(WITH_TF)]'
	touch $@

$(VENV)/installed-compat: $(METADATA) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[compat,$(WITH_TF)]'
	touch $@

$(VENV)/installed-security: $(METADATA) | $(VENV)/installed-tf
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[security]'
	touch $@

.PHONY: install
install: $(VENV)/installed-tf  ## Create .venv and install the package with TensorFlow, dashboard and autoscaler

# ---------------------------------------------------------------------------------------------------------------- use

.PHONY: demo
demo: $(VENV)/installed-tf  ## Train Wide & Deep while PS go 1→3→2 and workers 1→3→2 (about two minutes)
	@$(BIN)/python -c "import pathlib, sys, deeprec_ext.rundir as d; sys.exit(d.RunDirectory(pathlib.Path('$(DEMO_DIR)')).in_use() \
	    and '$(DEMO_DIR): a demo is running in it; wait for its end, or choose another: make demo DEMO_DIR=...')"
	rm -rf $(DEMO_DIR)
	PATH="$(CURDIR)/$(BIN):$$PATH" deeprec-ext run --workdir $(DEMO_DIR) --events examples/census_wide_deep/demo.yaml \
	    --ps 1 --workers 1 -- \
	    python examples/census_wide_deep/train.py --steps $(DEMO_STEPS) $(if $(DATA),--data $(DATA))

# --------------------------------------------------------------------------------------------------------------- check

.PHONY: test
test: lint  ## Run lint, types, layers, unit tests, and one whole job of each kind (below 15 minutes)
	$(BIN)/python -m pytest -m "not long" $(UNIT_TESTS) tests/unit tests/docs tests/kubeflow $(LARGE_TESTS:%=--ignore=%) $(PYTEST_ARGS)
	$(BIN)/python -m pytest -m "smoke" $(AT_ONCE) $(JOBS_TESTS) $(PYTEST_ARGS)

.PHONY: test-parts
test-parts: $(VENV)/installed-test $(VENV)/installed-tf  ## Run the unit tests that `make test` leaves out: of the examples, and those with a TensorFlow server each
	for part in $(LARGE_PARTS); do $(BIN)/python -m pytest -m "not long" $(UNIT_TESTS) $$part $(PYTEST_ARGS) || exit; done

.PHONY: test-jobs
test-jobs: $(VENV)/installed-test $(VENV)/installed-tf  ## Run the tests of whole jobs that `make test` leaves out (CI runs all three)
	$(BIN)/python -m pytest -m "not long and not smoke" $(AT_ONCE) $(JOBS_TESTS) $(PYTEST_ARGS)

.PHONY: cluster
cluster:  ## Build a Kubernetes for the tests in tests/cluster (once; five minutes), unless KUBECONFIG names one
	tests/cluster/tool/cluster build

.PHONY: e2e
e2e: $(VENV)/installed-test $(VENV)/installed-tf  ## Run a TFJob with real pods on a Kubernetes node in this machine, then with two images (needs root)
	$(BIN)/python -m tests.cluster.e2e
	$(BIN)/python -m tests.cluster.e2e --package inject

.PHONY: test-all
test-all: lint  ## All three, with the long tests, a minute or longer each
	$(BIN)/python -m pytest $(UNIT_TESTS) tests/unit tests/docs tests/kubeflow $(LARGE_TESTS:%=--ignore=%) $(PYTEST_ARGS)
	for part in $(LARGE_PARTS); do $(BIN)/python -m pytest $(UNIT_TESTS) $$part $(PYTEST_ARGS) || exit; done
	$(BIN)/python -m pytest $(AT_ONCE) $(JOBS_TESTS) $(PYTEST_ARGS)

.PHONY: compat
compat: $(VENV)/installed-compat  ## Run scripts in the style of TensorFlow's tutorials, unchanged, scaled, with kills
	$(BIN)/python -m pytest $(AT_ONCE) tests/compat $(PYTEST_ARGS)

.PHONY: compat-latest
compat-latest:  ## The same on the newest TensorFlow that was tried, without Estimator, in an environment of its own
	$(MAKE) compat TF=tf-latest VENV=.venv-latest

.PHONY: keras-latest
keras-latest:  ## Keras's `fit` on the newest TensorFlow: what it computes, and real jobs whose processes are killed
	$(MAKE) keras-fit TF=tf-latest VENV=.venv-latest

.PHONY: keras-fit
keras-fit: $(VENV)/installed-compat
	# Each leaves its servers behind: in two parts, or 24 GB do not hold them.
	$(BIN)/python -m pytest $(UNIT_TESTS) $(wordlist 1,4,$(KERAS_LATEST)) $(PYTEST_ARGS)
	$(BIN)/python -m pytest $(UNIT_TESTS) $(wordlist 5,$(words $(KERAS_LATEST)),$(KERAS_LATEST)) $(PYTEST_ARGS)
	$(BIN)/python -m pytest $(AT_ONCE) tests/behaviour/test_fit.py tests/behaviour/test_fit_in_step.py \
	    -k "rows_of_arrays_are_trained or records_of_files or an_unchanged_script" $(PYTEST_ARGS)

# PyTorch's CPU wheel is in no registry, and its default one pulls 2.5 GB of CUDA: Debian's package has what the tests want.
TORCH_PYTHON ?= /usr/bin/python3

.PHONY: torch
torch:  ## PyTorch's DDP scripts in real jobs, with Debian's python3-torch, in .venv-torch, which has no TensorFlow
	@if ! $(TORCH_PYTHON) -c 'import torch, venv, ensurepip' 2>/dev/null; then
	    echo "skipped: $(TORCH_PYTHON) has no torch; on Debian: apt-get install python3-torch python3-venv"
	    exit 0
	fi
	$(MAKE) torch-tests VENV=.venv-torch

.venv-torch/installed-torch: $(METADATA)
	$(TORCH_PYTHON) -m venv --system-site-packages .venv-torch
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check -e '.[compat]'
	touch $@

.PHONY: torch-tests
torch-tests: $(VENV)/installed-torch
	$(BIN)/python -c 'import importlib.util as found, sys; sys.exit("TensorFlow is here" if found.find_spec("tensorflow") else 0)'
	$(BIN)/python -m pytest $(AT_ONCE) tests/unit/torch tests/torch $(PYTEST_ARGS)

.PHONY: test-quick
test-quick: $(VENV)/installed-test  ## Run the tests that are not marked slow
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

.PHONY: chaos
chaos: $(VENV)/installed-test $(VENV)/installed-tf  ## Kill, hang and scale at random for half an hour (CHAOS_ARGS: --seed 7, ...)
	$(BIN)/python -m tests.chaos --minutes 30 $(CHAOS_ARGS)

.PHONY: lint
lint: $(VENV)/installed-test  ## Check style (ruff), types (mypy), layers (import-linter) and that Python 3.9 has all that is used (vermin)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin --quiet --no-tips --violations --target=3.9- deeprec_ext tfjob

.PHONY: check-security
check-security: $(VENV)/installed-security  ## Look for insecure code (bandit) and known vulnerabilities of what is installed (pip-audit)
	$(BIN)/bandit --quiet --recursive --severity-level medium deeprec_ext tfjob
	$(BIN)/python -m tests.security.audit

.PHONY: format
format: $(VENV)/installed-test  ## Let ruff repair and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: proto
proto: $(VENV)/installed-test  ## Regenerate the protocol's code
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. deeprec_ext/proto/deeprec_ext.proto
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. deeprec_ext/tf_private/tf_services.proto

.PHONY: size
size: $(VENV)/installed-test  ## Count the product: lines and files of each room, lengths of functions, circles between files
	$(BIN)/python -m benchmarks.house

.PHONY: house
house: $(VENV)/installed-test  ## Draw docs/house.svg, the rooms and their order, from the contracts in pyproject.toml
	$(BIN)/python -m benchmarks.house --draw

.PHONY: settings
settings: $(VENV)/installed-test  ## Write docs/settings.md from the table of options
	$(BIN)/python -m tests.docs.test_options

# ---------------------------------------------------------------------------------------------------------- benchmarks

.PHONY: bench-stock
bench-stock: $(VENV)/installed-tf  ## Measure stock TensorFlow: step time, and stop - checkpoint - restart
	$(BIN)/python -m benchmarks.stock.run

.PHONY: bench
bench: $(VENV)/installed-tf  ## Measure everything in docs/benchmarks.md (long)
	$(BIN)/python -m benchmarks.stock.run
	$(BIN)/python -m benchmarks.scale_pause
	$(BIN)/python -m benchmarks.fit --pauses 2
	$(BIN)/python -m benchmarks.dedup
	$(BIN)/python -m benchmarks.cutting
	$(BIN)/python -m benchmarks.control --scalings 50
	$(BIN)/python -m benchmarks.failover
	$(BIN)/python -m benchmarks.backup
	$(BIN)/python -m benchmarks.estimator
	$(BIN)/python -m benchmarks.estimator memory
	$(BIN)/python -m benchmarks.autoscale --steady 20
	$(BIN)/python -m benchmarks.iterators
	$(BIN)/python -m benchmarks.large
	$(BIN)/python -m benchmarks.long_run

.PHONY: clean
clean:  ## Remove .venv, caches and what was built
	rm -rf $(VENV) .venv-latest .venv-torch build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
