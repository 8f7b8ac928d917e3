# Two commands matter: `make demo` and `make test`. Each does all of its own set-up in .venv.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$name; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
VERSION := 16
TOUCHES_SQL := tests/db tests/ledger tests/memory tests/pipeline tests/recall tests/service tests/test_queries.py

.PHONY: demo test test-postgres test-unprivileged lint check wheel clean

demo: $(VENV)/.installed  ## import a real sample of Codex memory and recall from it, offline
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

test: $(VENV)/.installed-dev  ## the whole suite
	$(BIN)/pytest

test-postgres: $(VENV)/.installed-dev .postgres/$(VERSION)/.installed  ## what touches SQL, on VERSION=16 or 17
	MEMSVC_TEST_POSTGRES_BIN=$$(ls -d "$(CURDIR)"/.postgres/$(VERSION)/*/pginstall/bin) $(BIN)/pytest $(TOUCHES_SQL)

test-unprivileged: $(VENV)/.installed-dev  ## the embedded server, for root where no user namespace can be made
	$(BIN)/python tests/db/forbidden.py $(BIN)/pytest tests/db/test_embedded.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright

check: lint test

wheel: $(VENV)/.installed-dev
	rm -rf dist
	$(BIN)/python -m build --wheel --outdir dist

clean:
	rm -rf $(VENV) .demo .postgres dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: memsvc needs Python 3.11 or later, and none was found"; \
		echo "mend: install it, or say where it is: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "error: $(PYTHON) cannot make a virtual environment"; \
		echo "mend: on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }

$(VENV)/.installed: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Only the programs in the wheel are used, so it need not fit the interpreter.
.postgres/%/.installed: .ci/postgres-%.txt $(BIN)/python
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --python-version 3.12 \
		--target $(@D) --requirement $<
	@touch $@
