# thdpack: `make help` lists what there is. Everything runs in .venv, which the first target makes.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
FASTA ?= data/sample.fasta
OUT ?= data/sample
OPTS ?=
PRESET ?= esm2-tiny
RUN ?= runs/$(PRESET)
TESTS ?= tests

VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
# pip would compile all of it on one core, a minute more; torch holds a file of Python 3.12's, which 3.11 cannot compile and nobody imports
COMPILE_ALL := $(VENV)/bin/python -m compileall -qq -j 0 -x 'transformers/models/|/tests/' $(VENV)/lib || true
KERNELS := $(wildcard packers/*.pyx pipeline/*.pyx)

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14
	@echo 'variables: FASTA="a.fasta.gz dir/*.faa s3://bucket/x.fa" OUT=data/uniref50 OPTS="--capacity 16384" PRESET=esm2-8m RUN=runs/first'

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core: pyproject.toml setup.py constraints.txt $(KERNELS) | $(VENV)/bin/python
	@echo 'installing thdpack into $(VENV) and compiling its kernels; once, about a minute'
	$(PIP) --editable .
	$(VENV)/bin/python -m compileall -q schemas packers pipeline trainer
	touch $@

$(VENV)/report: pyproject.toml setup.py constraints.txt $(KERNELS) | $(VENV)/bin/python
	@echo 'installing thdpack and polars into $(VENV); once, about a minute'
	$(PIP) --editable '.[report]'
	touch $@ $(VENV)/core

$(VENV)/train: pyproject.toml setup.py constraints.txt $(KERNELS) | $(VENV)/bin/python
	@echo 'installing thdpack and torch into $(VENV) and compiling kernels; once, about a minute and a half'
	$(PIP) --editable '.[train]'
	touch $@ $(VENV)/core

$(VENV)/dev: pyproject.toml setup.py constraints.txt $(KERNELS) | $(VENV)/bin/python
	@echo 'installing thdpack, torch and all that tests need into $(VENV); once, about two minutes'
	$(PIP) --no-compile --editable '.[report,train,hf,dev]'
	$(COMPILE_ALL)
	$(VENV)/bin/python -m compileall -q schemas packers pipeline trainer
	touch $@ $(VENV)/core $(VENV)/report $(VENV)/train

setup: $(VENV)/dev ## install all that tests and training need, and compile what is compiled once

preprocess: $(VENV)/core ## FASTA → dataset: FASTA="…" OUT=… OPTS="…"; the sample by default
	$(VENV)/bin/thdpack preprocess $(FASTA) --out $(OUT) $(OPTS)

verify: $(VENV)/core ## check the dataset OUT, records against buckets too
	$(VENV)/bin/thdpack verify $(OUT) --deep

stats: $(VENV)/report $(OUT)/manifest.json ## what the dataset OUT holds; OPTS="--html report.html" for a page
	$(VENV)/bin/thdpack stats $(OUT) $(OPTS)

$(OUT)/manifest.json:
	$(MAKE) preprocess

train: $(VENV)/train $(OUT)/manifest.json ## train PRESET on the dataset OUT into RUN: a tiny model on the sample by default; more options in OPTS
	$(VENV)/bin/python -m trainer.train $(PRESET) --data $(OUT) --out $(RUN) $(OPTS)

check: $(VENV)/dev ## ruff, mypy --strict, import-linter
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

test: $(VENV)/dev ## all tests, or TESTS=tests/unit
	$(VENV)/bin/pytest $(TESTS)

bench: $(VENV)/dev ## packers on the sample's lengths, and the whole job; see docs/benchmarks.md for more
	$(VENV)/bin/python -m benchmarks.packing --fasta $(FASTA)
	$(VENV)/bin/python -m benchmarks.preprocess --fasta $(FASTA)

clean: ## remove .venv, caches and compiled kernels; datasets stay
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f packers/*.so packers/*.c pipeline/*.so pipeline/*.c
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help setup preprocess verify stats train check test bench clean
