# Every target sets up what it needs, so that `make demo` or `make test` alone works in a fresh clone.
#   PYTHON=python3.12   interpreter for a new environment          VENV=folder   where that environment lives
#   JOBS=3              processes that run the tests of `make test`: one more than two cores, as many tests wait
#   GPU_JOBS=8          and those of `make test-gpu`, where its interpreter has pytest-xdist
#   ARGS="..."          passed on to the program of the target, e.g. make test ARGS="tests/unit -x"

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
JOBS ?= 3
GPU_JOBS ?= 8

BIN := $(VENV)/bin
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip
PINS := pyproject.toml constraints.txt
# GPU work is opt-in: `make demo EXTRAS=dashboard,cuda13` plans for the GPU, too.
EXTRAS ?= dashboard

.DEFAULT_GOAL := help
.PHONY: help demo torch serve test test-gpu soak soak-lowest soak-newest check format docs bench-cpu bench-gpu wheel clean compiler
# test-gpu and bench-gpu take an interpreter that has what they need, and install nothing then:
#   make bench-gpu GPU_PYTHON=python3.12    with torch, cupy, numpy, pydantic, ml_dtypes, rustworkx (and nvmath for
#   library calls, pytest and pytest-timeout for test-gpu, which runs in parallel where there is pytest-xdist)
# Results of either say the commit; in a copy without git, give it: make bench-gpu FUSEPLAN_COMMIT=$(git rev-parse HEAD)
GPU_PYTHON ?=
GPU_RUN := $(or $(GPU_PYTHON),$(BIN)/python)
GPU_ENV := $(if $(GPU_PYTHON),,$(VENV)/.gpu)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo compiler ## Plan Mistral RoPE through the HTTP service and show what comes back, twice
	@$(BIN)/python -m service.demo $(ARGS)

torch: $(VENV)/.torch compiler ## Run a transformer block by torch.compile(backend="fuseplan"), and say what went where
	@$(BIN)/python docs/torch_block.py $(ARGS)

serve: $(VENV)/.demo compiler ## Run the service on 127.0.0.1:8080
	@$(BIN)/fuseplan serve $(ARGS)

test: $(VENV)/.test compiler ## Run every test that needs no GPU
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

test-gpu: $(GPU_ENV) compiler ## Run every family and every emulated instruction on a CUDA device, within 9 minutes
	@parallel=$$($(GPU_RUN) -c 'from importlib.util import find_spec as f; print("-n $(GPU_JOBS)" * bool(f("xdist")))') && \
	  FUSEPLAN_NEED_GPU=1 FUSEPLAN_GPU_RESULTS=benchmarks/results/gpu_tests.json $(GPU_RUN) -m pytest tests/gpu $$parallel $(ARGS)

soak: $(VENV)/.test compiler ## Run the random-graph tests on 2,000 graphs, plan the whole corpus small, 1,000 faulty trials, 200 kills, 500 searches, unpack an image
	@FUSEPLAN_RANDOM_GRAPHS=2000 FUSEPLAN_FAULTY_TRIALS=1000 FUSEPLAN_KILLS=200 FUSEPLAN_SEARCHES=500 FUSEPLAN_UNPACK_IMAGE=1 $(BIN)/python -m pytest -m "soak or sweep or turn" --timeout=7200 $(ARGS)

	@$(MAKE) --no-print-directory soak-lowest soak-newest

# The whole suite with other versions of what Fuseplan runs with; without PyTorch, of which neither is tried. What the tests
# themselves need comes afterwards: schemathesis wants a newer rich than the lowest.
soak-lowest: ## Run the whole suite with the lowest versions of the packages that it allows
soak-newest: ## Run the whole suite with the newest versions
soak-lowest soak-newest: soak-%: $(VENV)/.test compiler
	@$(PYTHON) -m venv --clear $(VENV)-$*
	@echo "Installing Fuseplan with the $* packages that it allows into $(VENV)-$* ..."
	@$(VENV)-$*/bin/python -m pip install -q --disable-pip-version-check $(if $(filter lowest,$*),-c lowest.txt) -e '.[dashboard]'
	@$(VENV)-$*/bin/python -m pip install -q --disable-pip-version-check -e '.[dashboard,cuda13,dev]'
	@$(VENV)-$*/bin/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

check: $(VENV)/.test ## Style, types and import directions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python .ci/docstrings
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/.test ## Rewrite the sources in the project's format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(VENV)/.test ## Print the reference pages in docs/ anew
	@$(BIN)/python -m docs.generate

bench-cpu: $(VENV)/.bench compiler ## The corpus against PyTorch, in one process; writes benchmarks/results/
	@$(BIN)/python -m benchmarks.cpu $(ARGS)

bench-gpu: $(GPU_ENV) compiler ## Plans beside PyTorch and cuBLAS on a CUDA device, within 9 minutes; writes benchmarks/results/
	@$(GPU_RUN) -m benchmarks.gpu $(ARGS)

wheel: $(VENV)/.test ## Build dist/fuseplan-*.whl
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build --wheel $(ARGS)

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "Fuseplan needs Python 3.11 to 3.13; $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Python's venv module is missing. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# One stamp per set of extras: a target installs no more than it needs, and again only when a pin changes.
$(VENV)/.demo: $(PINS) | $(BIN)/python
	@echo "Installing Fuseplan into $(VENV) (once; about a minute) ..."
	@$(PIP) install -q -e '.[$(EXTRAS)]'
	@touch $@

$(VENV)/.test: $(PINS) | $(BIN)/python
	@echo "Installing Fuseplan with its test tools into $(VENV) (once; a few minutes) ..."
	@$(PIP) install -q -e '.[bench,dashboard,cuda13,dev,samplers]'
	@touch $@

$(VENV)/.bench: $(PINS) | $(BIN)/python
	@echo "Installing Fuseplan and PyTorch into $(VENV) (once; a few minutes) ..."
	@$(PIP) install -q -e '.[dashboard,bench]'
	@touch $@

$(VENV)/.torch: $(PINS) client/pyproject.toml | $(BIN)/python
	@echo "Installing Fuseplan, its client and PyTorch into $(VENV) (once; a few minutes) ..."
	@$(PIP) install -q -e '.[dashboard]' -e './client[torch,openblas]'
	@touch $@

$(VENV)/.gpu: $(PINS) | $(BIN)/python
	@echo "Installing Fuseplan, PyTorch and cuBLAS into $(VENV) (once; some minutes) ..."
	@$(PIP) install -q -e '.[bench,dashboard,cuda13,cublas13,dev]'
	@touch $@

compiler:
	@test -n "$$CXX" || command -v g++ >/dev/null || command -v clang++ >/dev/null || \
	  $(BIN)/python -c 'import ziglang' 2>/dev/null || \
	  { echo "A C++ compiler is missing. On Debian and Ubuntu: apt install g++; or without root: $(BIN)/pip install ziglang" >&2; exit 1; }
