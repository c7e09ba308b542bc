# The two commands: `make demo` shows the main job on the bundled data, `make test` runs the tests.
# Each does all of its own set-up: it needs Python 3.11 or newer, make and a package registry, nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test check format bench clean

demo: $(READY)
	@$(BIN)/hire demo

test: $(READY)
	@$(BIN)/pytest

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY)
	@$(BIN)/pip install --quiet --disable-pip-version-check polars==2.1.0 duckdb==2.0.0
	@$(BIN)/python benchmarks/readers.py
	@$(BIN)/python benchmarks/wiki_size.py
	@$(BIN)/python benchmarks/episodes.py
	@$(BIN)/python benchmarks/training_step.py
	@$(BIN)/python benchmarks/serving.py

# Exact versions from the lock file first, then the project itself, which brings nothing more.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	@echo "Setting up $(VENV) (once, a minute or two) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $(READY)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
