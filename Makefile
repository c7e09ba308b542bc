# The two commands: `make demo` shows the main job on the bundled data, `make test` runs the checks and the tests.
# Each does all of its own set-up: it needs Python 3.11 or newer, make and a package registry, nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check
READY := $(VENV)/ready
DOCS_READY := $(VENV)/docs-ready

.PHONY: demo test check browser format docs bench bench-scale torture soak sbom audit clean

demo: $(READY)
	@$(BIN)/hire demo

# Two workers: each has a share of the tests, and takes over from the other when it is done.
test: $(READY) check browser
	@$(BIN)/pytest -n 2 --dist worksteal

# The fault tests in full, at most 30 minutes: docs/reliability.md. HIRE_TORTURE_SEED and HIRE_FUZZ_SEED choose other
# samples. They write many small files: into memory, where there is enough of it.
MEMORY_DISK := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 { print "TMPDIR=/dev/shm" }')
torture: $(READY)
	@$(PIP) install --require-hashes --no-deps --requirement requirements-torture.lock || \
	  echo "atheris cannot be installed here; what it does is skipped." >&2
	@HIRE_TORTURE=1 $(MEMORY_DISK) timeout 30m $(BIN)/pytest tests/faults -n 2 --dist worksteal --durations=10 \
	  -o tmp_path_retention_policy=failed -o tmp_path_retention_count=1

# Lint, format, types, and who may import whom.
check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

# Chromium for the tests of the page, where it can be installed; without it they are skipped.
browser:
	@tools/browser.sh

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# The documentation as a site, in site/; the picture of the architecture follows the imports.
docs: $(DOCS_READY)
	@$(BIN)/python tools/architecture.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# Clients that teach, predict, explain and judge at once: make soak MODEL=data/nell-one CLIENTS=64 MINUTES=10
MODEL ?= umls-one
CLIENTS ?= 8
MINUTES ?= 1
soak: $(READY)
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults.soak $(MODEL) --clients $(CLIENTS) --minutes $(MINUTES)

# What is installed, as CycloneDX, and docs/licences.md; then known vulnerabilities, as far as the index tells.
sbom: $(READY)
	@$(BIN)/python tools/licences.py

audit: $(READY)
	@$(BIN)/python tools/audit.py

bench: $(READY)
	@$(PIP) install polars==2.1.0 duckdb==2.0.0
	@$(BIN)/python benchmarks/readers.py
	@$(BIN)/python benchmarks/wiki_size.py
	@$(BIN)/python benchmarks/episodes.py
	@$(BIN)/python benchmarks/training_step.py
	@$(BIN)/python benchmarks/serving.py

# The chart of docs/scale.md, from 10 thousand to 50 million entities: half an hour, 12 GiB of memory, 20 GB of disk.
bench-scale: $(READY)
	@$(BIN)/python benchmarks/scale.py

# Exact versions and hashes from the lock file first, then the project itself. That brings nothing more, unless the build of
# torch for this platform has libraries of its own, whose versions its metadata pins. torch is fetched by itself: of several
# builds, pip prefers one that an index offers to one in a local folder as soon as it sees hashes.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	@echo "Setting up $(VENV) (once, a minute or two) ..."
	@$(PYTHON) -m venv $(VENV)
	@sed -n '/^torch==/,/[^\\]$$/p' requirements.lock > $(VENV)/torch.lock
	@$(PIP) download --no-deps --dest $(VENV)/torch $$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements.lock)
	@$(PIP) install --require-hashes --no-deps --no-index --find-links $(VENV)/torch --requirement $(VENV)/torch.lock
	@rm -r $(VENV)/torch
	@$(PIP) install --require-hashes --no-deps --requirement requirements.lock
	@$(PIP) install --no-build-isolation --editable .
	@touch $(READY)

$(DOCS_READY): $(READY) requirements-docs.lock
	@$(PIP) install --require-hashes --no-deps --requirement requirements-docs.lock
	@touch $(DOCS_READY)

clean:
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
