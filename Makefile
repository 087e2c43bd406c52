# make demo    the main job, shown and proven
# make test    every test
# make test-others  every test on every other Python from 3.11 on that this machine has
# make test-all  both
# make check   style, types, layers
# make bench   the measurements
# make faults  runs killed at every moment and at any, and resumed; any history of calls and runs
# make mutants what no test notices, in a sample of small changes: SAMPLE=100 SEED=1
# Each installs what it needs into .venv, and says so. With MINUTES=6, tests that have not begun after so many minutes do not run; as their
# order is random, the others are a sample.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DIR    ?=
SAMPLE ?= 100
SEED   ?= 1
# Half of what the tests do is to wait for processes, so two workers for each of two cores are the fastest.
WORKERS ?= 4
MINUTES ?=

.PHONY: demo test test-others test-all check bench faults mutants clean

$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) tools/check_python.py
	@$(PYTHON) tools/install.py $(VENV) dev
	@touch $@ $(VENV)/runs

# The demo needs a fifth of what the tests need.
$(VENV)/runs: pyproject.toml constraints.txt
	@$(PYTHON) tools/check_python.py
	@$(PYTHON) tools/install.py $(VENV) cli
	@touch $@

demo: $(VENV)/runs
	@$(BIN)/callgate demo $(if $(DIR),--dir '$(DIR)')

test: $(VENV)/ready
	$(BIN)/python tools/run_tests.py $(WORKERS) $(if $(MINUTES),--minutes=$(MINUTES))

test-all: test test-others

test-others: $(VENV)/ready
	$(BIN)/python tools/other_pythons.py $(if $(MINUTES),--minutes $(MINUTES))

check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_tracked_files.py

bench: $(VENV)/ready
	$(BIN)/python -m bench

faults: $(VENV)/ready
	$(BIN)/python -m tests.recovery.kill_cases
	$(BIN)/python -m tests.recovery.random_kills
	$(BIN)/python -m tests.recovery.mcp_kill_cases
	$(BIN)/python -m tests.gateway.random_kills
	$(BIN)/python -m tests.recovery.histories

$(VENV)/mutants: $(VENV)/ready
	@$(PYTHON) tools/install.py $(VENV) dev,mutants
	@touch $@

mutants: $(VENV)/mutants
	nice $(BIN)/python tools/mutants.py --sample $(SAMPLE) --seed $(SEED)

clean:
	rm -rf $(VENV) $(VENV)-3.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .npm_packages
