# make run and make test do everything on a fresh Debian or Ubuntu machine with Python 3.11.
SHELL := /bin/bash
BIN := .venv/bin
READY := .venv/.ready

# Python compiles a module once, not in each of the thousands of processes that tests start. Beside
# the sources nothing is written, so an environment that forbids that loses nothing.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/bytecode

.PHONY: help setup run test bench torture flakes mutants dist-check lint format docs screenshots pin clean

help:            ## these lines
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(READY)  ## .venv with the holdfast command in it, and the system packages that tests need

$(READY): pyproject.toml requirements.lock scripts/setup scripts/install
	@scripts/setup

run: $(READY)    ## the main job on the embedded default: every promise, under every fault
	@$(BIN)/holdfast check --report holdfast-report.html

test: $(READY)   ## every test; about nine minutes on two cores
	@$(BIN)/python -m pytest -n $$((2 * $$(nproc) + 1)) --dist worksteal $(ARGS)

bench: $(READY)  ## figures, side by side in one run, as ratios
	@$(BIN)/python -m bench $(ARGS)

torture: $(READY) ## the same promises, for as long as you like, the contract on every version: make torture MINUTES=30
	@HOLDFAST_TORTURE_MINUTES=$(or $(MINUTES),10) $(BIN)/python -m pytest tests/torture tests/contract $(ARGS)

flakes: $(READY) ## tests that do not end the same each time, in any order, beside load: make flakes N=6 ARGS=tests/redis
	@$(BIN)/python scripts/flakes.py $(or $(N),4) $(ARGS)

mutants: $(READY) ## the code broken in one small way after another: a test notices each; make mutants ARGS="judge sqlite"
	@$(BIN)/python scripts/mutants.py $(ARGS)

dist-check: $(READY) ## wheel and sdist, installed with and without each extra; a few minutes
	@HOLDFAST_TORTURE_MINUTES=1 $(BIN)/python -m pytest tests/packaging tests/torture/test_extras.py $(ARGS)

lint: $(READY)   ## ruff, its formatter and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY) ## let ruff lay the code out
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(READY)   ## the documentation site, in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

screenshots: $(READY) ## the pictures in docs/images, by a real browser
	@$(BIN)/python scripts/screenshots.py

pin:             ## renew requirements.lock from the newest releases that fit
	@scripts/setup --pin

clean:           ## remove what these commands made
	@rm -rf .venv .cache site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis holdfast-report.html
