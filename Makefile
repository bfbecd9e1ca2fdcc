# Every target sets up what it needs in .venv and reuses it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: install demo test check docs slow clean
.DEFAULT_GOAL := install

install: $(VENV)/.installed

demo: install
	$(BIN)/python examples/demo.py

test: check
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 -m slow

docs: $(VENV)/.installed-dev
	$(PIP) "mkdocs>=1.6"
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) runs site

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -e ".[dev]"
	@touch $@
