# `make demo` and `make test` need nothing but python3 and make: each builds .venv by itself,
# and costs nothing when pyproject.toml and constraints.txt have not changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PEERS := .venv-peers
PEERS_INSTALLED := $(PEERS)/.installed
BENCHMARK ?=
DEMO ?=

# Small matrices on few cores: one thread a process, or waiting threads spin.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
# Tests and the demo start many processes, and each imports torch: 1 second with its bytecode, 5
# without. It is kept with the environment, so no folder of source is written to.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/$(VENV)/bytecode

.PHONY: demo test-fast test slow mutations lint format contract bench clean

# `make demo DEMO="--keep"` leaves the coordinator running; `--data DIR` takes your own CSV files.
demo: $(INSTALLED)
	$(BIN)/python -m benchmarks.demo $(DEMO)

# Three speeds; tests/conftest.py says which test belongs to which.
#   test-fast   before a commit: within 90 seconds on two cores
#   test        before anything lands (`.ci/run`): within ten minutes on two cores
#   slow        now and then: tests marked `slow`, and the mutations
# Each of two processes takes one half of the tests, in their order, and then from what the other has
# left: so neither waits at the end, and what is made once for a file is made once.
PYTEST = $(BIN)/python -m pytest -n 2 --dist worksteal

test-fast: $(INSTALLED)
	$(PYTEST) --fast

test: $(INSTALLED)
	$(PYTEST)

# pytest ends with 5 where no test is marked.
slow: $(INSTALLED) mutations
	$(PYTEST) -m slow || test $$? -eq 5

# Takes each check of the secure sum's client out, one at a time: a test of the attack must fail.
mutations: $(INSTALLED)
	$(BIN)/python -m tests.adversary.mutations

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Writes the published contract anew; a test compares it with the application.
contract: $(INSTALLED)
	$(BIN)/python -m service.export_contract > openapi/openapi.json

# `make bench` lists the benchmarks; `make bench BENCHMARK="statistics --quick"` runs one.
bench: $(INSTALLED) $(PEERS_INSTALLED)
	$(BIN)/python -m benchmarks $(BENCHMARK)

clean:
	rm -rf $(VENV) $(PEERS) .mypy_cache .pytest_cache .ruff_cache .hypothesis

# What is imported is compiled when it is: compiling all of torch would take longer than the checks.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[server,postgres,dev,bench]'
	touch $@

# Peers that we are measured against pin versions that contradict ours (flwr: an old FastAPI).
$(PEERS_INSTALLED): benchmarks/peers.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --requirement benchmarks/peers.txt
	touch $@
