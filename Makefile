# Wraps what a Snakemake user would type; nothing happens here that the commands below do not say.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint clean

demo: $(VENV)/.ready
	$(BIN)/snakemake --cores 2 --quiet host reason

test: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	$(BIN)/mypy
	$(BIN)/pytest

# Made anew when the pins change. torch first and alone: named exactly, pip can take a CPU build where one is offered.
$(VENV)/.ready: pyproject.toml envs/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint envs/constraints.txt --editable '.[test]'
	touch $@

clean:
	rm -rf results .snakemake
