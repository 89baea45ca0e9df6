# `make help` lists the targets. They use the virtual environment .venv, and create it if necessary.
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
TORCH ?=

VENV := .venv
INSTALLED_FROM := pyproject.toml setup.py constraints.txt $(shell find packers pipeline -name "*.py[x]" -o -name "*.pxd")

# Let Python write .pyc files. Without them, every process would compile torch again.
export PYTHONDONTWRITEBYTECODE :=

# Without --no-compile, pip would compile every module, used or not, on one core. Without
# --no-build-isolation, pip would install pyarrow and Cython a second time to compile the kernels.
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check install --progress-bar off --no-compile
PIP_PINNED := $(PIP) --constraint constraints.txt
PIP_THDPACK := $(PIP_PINNED) --no-build-isolation --editable
BUILD_TOOLS := setuptools Cython pyarrow
# pip's progress is written to a log. Warnings and errors are shown, except warnings that a local
# folder named in the machine's pip configuration does not exist.
LOG := $(VENV)/install.log
MISSING_FOLDER := ^WARNING: Location 'file:.* is ignored: it is neither a file nor a directory\.
show_problems = 2>&1 >> $(LOG) | sed $(1) -e "/$(MISSING_FOLDER)$$/d" >&2 \
	|| { echo 'pip failed: $(LOG) has its whole output' >&2; exit 1; }

# pip downloads and unpacks on one core, so four pip processes each install a quarter of
# constraints.txt.
INSTALL_PINS := seq 0 3 | xargs -P 4 -I QUARTER bash -c \
	"awk 'NR % 4 == QUARTER' constraints.txt > $(VENV)/pins-QUARTER \
	&& $(PIP) --no-deps --requirement $(VENV)/pins-QUARTER"
# A pip process may warn about a package that another process has only partly written. The warning
# is not shown, because the next pip call checks every package.
HALF_INSTALLED := -e '/^WARNING: Skipping .* due to invalid metadata entry/d'
# Importing these modules once compiles them to bytecode. Otherwise several test processes would
# compile them at the same time. Failed imports are ignored here, because the tests report them.
IMPORTED_BY_TESTS := torch.distributed.checkpoint, torch.distributed.fsdp, torch.distributed.run, \
	torch.distributed.tensor, torch.profiler, torch.utils.flop_counter, \
	accelerate, lightning.pytorch, torchdata.stateful_dataloader, transformers.trainer, \
	transformers.models.auto.modeling_auto, transformers.models.esm.modeling_esm, \
	transformers.models.esm.tokenization_esm, datasets, Bio.SeqIO, flask_cors, \
	hypothesis.extra.numpy, matplotlib.pyplot, moto.s3.responses, moto.server, \
	playwright.sync_api, polars, pyarrow.dataset, pyarrow.parquet, pytest_timeout, \
	ray.cluster_utils, rich.progress, s3fs, tyro, xdist.remote, xdist.workermanage
COMPILE_IMPORTED := $(VENV)/bin/python -c "import $(IMPORTED_BY_TESTS)" > /dev/null 2>&1 || true
COMPILE_THDPACK := $(VENV)/bin/python -m compileall -q thdpack.py schemas packers pipeline trainer

# Shell code that prints the last line of pip's log every SHOW_EVERY seconds, until the shell ends.
# The last `sleep` may outlive the shell. Its output goes to /dev/null, because `make | tee` would
# wait for a process that holds make's standard output open.
SHOW_EVERY := 10
SHOW_PIP = while sleep $(SHOW_EVERY) > /dev/null 2>&1; do \
	echo "  $$SECONDS s: $$(tail -n 1 $(LOG) 2> /dev/null | cut -c 1-80)"; done & \
	trap "kill $$! 2> /dev/null" EXIT

# $(call install,WHAT,EXTRAS,TIME)
define install
	@echo 'installing $(1) into $(VENV) and compiling the kernels (once; about $(3))'
	@$(SHOW_PIP); \
	echo '  1 of 3: Cython and pyarrow, which compile the kernels'; \
	$(PIP_PINNED) $(BUILD_TOOLS) $(call show_problems); \
	echo '  2 of 3: packages of $(1), and the kernels'; \
	$(PIP_THDPACK) '.$(2)' $(call show_problems); \
	echo '  3 of 3: bytecode'; \
	$(COMPILE_THDPACK); \
	echo "installed $(1) in $$SECONDS s"
endef

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14
	@echo 'variables: FASTA="a.fasta.gz dir/*.faa s3://bucket/x.fa" OUT=data/uniref50'
	@echo '           OPTS="--capacity 16384" PRESET=esm2-8m RUN=runs/first TESTS=tests/unit'

# The venv module of Python 3.11 installs an old setuptools. It is removed here, because otherwise
# one pip process would replace it while others use it.
$(VENV)/bin/python:
	@echo 'making $(VENV) with $(PYTHON) (once; about 7 to 20 s)'
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip uninstall -qq --yes setuptools

$(VENV)/core: $(INSTALLED_FROM) | $(VENV)/bin/python
	$(call install,thdpack,,40 s to 2 minutes)
	@touch $@

$(VENV)/report: $(INSTALLED_FROM) | $(VENV)/bin/python
	$(call install,thdpack and polars,[report],45 s to 2 minutes)
	@touch $@ $(VENV)/core

# If a CPU build of torch is installed, pip keeps it: 2.13.0+cpu, for example, satisfies
# constraints.txt.
$(VENV)/train: $(INSTALLED_FROM) | $(VENV)/bin/python
	@if [ "$$(uname)" = Linux ] && ! ls -d $(VENV)/lib/*/site-packages/torch > /dev/null 2>&1; then \
		echo 'torch with CUDA libraries takes 5.9 GB. To train on a CPU only, press Ctrl-C, run' \
		"$(VENV)/bin/pip install $$(grep '^torch==' constraints.txt) --index-url URL" \
		"(PyTorch's installation page shows the URL of the compute platform CPU)," \
		'and run this again'; fi
	$(call install,thdpack and torch,[train],50 s to 3 minutes)
	@touch $@ $(VENV)/core

$(VENV)/docs: $(INSTALLED_FROM) | $(VENV)/bin/python
	$(call install,thdpack and mkdocs,[docs],45 s to 2 minutes)
	@touch $@ $(VENV)/core

# constraints.txt lists the packages of one platform. The last pip call installs packages that
# constraints.txt does not name, such as those that only this machine's platform needs.
$(VENV)/dev: $(INSTALLED_FROM) | $(VENV)/bin/python
	@echo 'installing thdpack, torch and the packages of the tests into $(VENV)' \
		'and compiling the kernels (once; about 1 to 2 minutes)'
	@$(SHOW_PIP); \
	$(INSTALL_PINS) $(call show_problems,$(HALF_INSTALLED)); \
	$(PIP_PINNED) $(BUILD_TOOLS) $(call show_problems); \
	{ $(PIP_THDPACK) '.[report,examples,docs,dev]' $(call show_problems); } & thdpack=$$!; \
	$(COMPILE_IMPORTED); \
	wait $$thdpack; \
	$(COMPILE_THDPACK); \
	echo "installed thdpack, torch and the packages of the tests in $$SECONDS s"
	@touch $@ $(VENV)/core $(VENV)/report $(VENV)/train $(VENV)/docs

setup: $(VENV)/dev ## install everything for tests and training, and compile the kernels

preprocess: $(VENV)/core ## build the dataset OUT from FASTA; by default from the sample
	$(VENV)/bin/thdpack preprocess $(FASTA) --out $(OUT) $(OPTS)

verify: $(VENV)/core ## check the dataset OUT: every file, bucket and record
	$(VENV)/bin/thdpack verify $(OUT) --deep

stats: $(VENV)/report $(OUT)/manifest.json ## report on the dataset OUT; with OPTS="--html report.html", also as an HTML page
	$(VENV)/bin/thdpack stats $(OUT) $(OPTS)

$(OUT)/manifest.json:
	$(MAKE) preprocess

train: $(VENV)/train $(OUT)/manifest.json ## train PRESET on the dataset OUT into RUN; by default a tiny model on the sample
	$(VENV)/bin/thdpack train $(PRESET) --data $(OUT) --out $(RUN) $(OPTS)

# `python -m` puts this folder on sys.path, so that docs/site_pages/ can be imported. The variable
# hides a notice about the future of mkdocs. With --quiet, --strict would have no effect.
site: $(VENV)/docs ## build the documentation site into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict 2>&1 \
		| { grep -v '^INFO' || true; }
	@echo 'built site/; to read and search it, run: python3 -m http.server --directory site'

check: $(VENV)/dev ## run ruff, mypy --strict and import-linter
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

test: $(VENV)/dev ## run all tests, or only some: TESTS=tests/unit
	@echo 'running $(TESTS) (all tests take 8 to 12 minutes on 2 cores)'
	@$(VENV)/bin/pytest $(TESTS)

test-long: $(VENV)/dev ## run the tests with more killed processes and larger inputs
	@echo 'running $(TESTS) with THDPACK_LONG=1 (all tests take about half an hour on 2 cores)'
	@THDPACK_LONG=1 $(VENV)/bin/pytest $(TESTS) --timeout 1800

TEST_VERSIONS = deploy/packaging/test_versions.sh $(@:test-%=%) '$(PYTHON)' '$(TORCH)' '$(TESTS)'

test-lowest: ## run the tests with the lowest versions that pyproject.toml allows
	@$(TEST_VERSIONS)

test-newest: ## run the tests with the newest versions of all packages
	@$(TEST_VERSIONS)

wheel: ## build the source distribution and a wheel into dist/, and check them
	@deploy/packaging/build_wheel.sh '$(PYTHON)'

try-wheel: wheel ## install the wheel of dist/ into an empty environment, and run README's commands
	@$(PYTHON) deploy/packaging/try_wheel.py dist/*.whl

# Only this target installs mlcroissant, because mlcroissant needs scipy and others (120 MB).
check-cards: $(VENV)/dev ## validate croissant.json with mlcroissant, which this target installs
	@$(PIP_PINNED) mlcroissant==1.1.1 $(call show_problems)
	@$(VENV)/bin/pytest tests/e2e/report/card --numprocesses 0

# Snakemake has a virtual environment of its own, because it needs about 60 packages.
test-workflows: $(VENV)/report ## run deploy/snakemake on the sample with Snakemake, which this target installs
	@python3 -m venv build/workflows/venv
	@build/workflows/venv/bin/pip install -q snakemake==9.27.1 $(call show_problems)
	@rm -rf build/workflows/run
	PATH="$(abspath $(VENV))/bin:$$PATH" build/workflows/venv/bin/snakemake --cores 2 \
		--snakefile deploy/snakemake/Snakefile --directory build/workflows/run \
		--config fasta=$(abspath data/sample.fasta)
	grep 'nothing wrong' build/workflows/run/results/verified.txt
	grep -c '</html>' build/workflows/run/results/report.html

soak: $(VENV)/dev ## run the tests with other instruction sets, threads, seeds and users (takes hours)
	$(VENV)/bin/python -m benchmarks.soak $(OPTS)

bench: $(VENV)/dev ## time the packers and a build of FASTA; docs/benchmarks.md lists more benchmarks
	$(VENV)/bin/python -m benchmarks.offline.packing --fasta $(FASTA)
	$(VENV)/bin/python -m benchmarks.offline.preprocess --fasta $(FASTA)

clean: ## remove .venv, caches and compiled kernels, but no datasets
	rm -rf $(VENV) .venv-lowest .venv-newest build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find packers pipeline -name '*.so' -delete -o -name '*.c' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help setup preprocess verify stats train site check test test-long test-lowest test-newest \
	wheel try-wheel check-cards test-workflows soak bench clean
