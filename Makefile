# Two commands matter: `make demo` and `make test`. Each does all of its own set-up in .venv.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$name; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint check wheel clean

demo: $(VENV)/.installed  ## import a real sample of Codex memory and recall from it, offline
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

test: $(VENV)/.installed-dev  ## the whole suite
	$(BIN)/pytest

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
	rm -rf $(VENV) .demo dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis

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
