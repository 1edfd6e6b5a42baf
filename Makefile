# Everything from a fresh clone, with only Python 3.11 or newer, git and make.
WINDOWS := $(filter Windows_NT,$(OS))
PYTHON ?= $(if $(WINDOWS),python,python3)
BIN := .venv/$(if $(WINDOWS),Scripts,bin)
VENV := $(BIN)/python$(if $(WINDOWS),.exe)
ifdef WINDOWS # the shell of Git; without transports, as no site and no coordinator runs there
SHELL := bash
endif

# Nothing but the set-up's download cache is written outside of this folder.
export MPLBACKEND := Agg
export MPLCONFIGDIR := $(CURDIR)/.cache/matplotlib
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start hundreds of processes: each compiles the package's files if none has kept them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint types warm unit coverage long near network audit claims faults hostile mutants oldest newest docs pictures dist bench groups reproduce reproduce-quick format clean

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/ready ## Create .venv with the package and all that its tests need

demo: .venv/ready ## Cluster digits at simulated sites, and write the model and a picture to demo/
	@$(BIN)/python examples/digits.py demo

# Of three processes that run tests on two cores, one waits for a program or is done before.
WORKERS ?= 3

# Tests of a network wait for most of their time: they run beside the others.
test: .venv/ready ## Check style, types, two cases of each behaviour, and one real federation
	@$(MAKE) --no-print-directory -j3 lint types warm
	@$(MAKE) --no-print-directory -j2 PART="--part=first" unit network

test-all: test ## And all other cases: pairs, hostile questions, planted mistakes, the papers, federations
	@$(MAKE) --no-print-directory -j2 PART="--part=rest" unit network

warm: .venv/ready
	@$(BIN)/python -c 'from fedcluster.engines.warming import ensure_warmed; ensure_warmed(print)'

lint: .venv/ready ## Check the style, and who imports whom
	@$(BIN)/ruff check --quiet
	@said=$$($(BIN)/lint-imports --no-cache --no-logo 2>&1) || { echo "$$said"; exit 1; }
	@$(BIN)/ruff format --check --quiet || { echo "Some files are not formatted: make format"; exit 1; }

types: .venv/ready ## Check the types
	@$(BIN)/mypy --no-error-summary

unit: .venv/ready ## Run the tests, docstring examples included
	@mkdir -p .cache/tmp
	@TMPDIR=$(CURDIR)/.cache/tmp OMP_NUM_THREADS=1 $(BIN)/pytest --quiet -n $(WORKERS) --dist worksteal $(PART) -m "not network and not long" $(ARGS)

coverage: ## Run the same tests, and show what they cover; half as long again
	@$(MAKE) --no-print-directory unit ARGS=--cov

long: reproduce-quick ## Run the tests that search, compute or federate longest; more than ten minutes
	@mkdir -p .cache/tmp
	@TMPDIR=$(CURDIR)/.cache/tmp OMP_NUM_THREADS=1 HYPOTHESIS_PROFILE=thorough \
	    $(BIN)/pytest --quiet -n 2 --dist worksteal -m "long or hypothesis" tests

near: .venv/ready ## Run the tests that stand nearest to FILE=src/fedcluster/..., for 20 seconds
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/near.py $(FILE)

network: .venv/ready ## Test a real federation on this machine; two minutes
	@mkdir -p .cache/tmp
	@TMPDIR=$(CURDIR)/.cache/tmp $(BIN)/pytest --quiet $(PART) -m "network and not long" tests/network

oldest: .cache/oldest/ready ## Run the quick tests with the oldest libraries that are allowed, on Python 3.11
	@mkdir -p .cache/tmp
	@TMPDIR=$(CURDIR)/.cache/tmp OMP_NUM_THREADS=1 NUMBA_CACHE_DIR=$(CURDIR)/.cache/oldest/numba \
	    .cache/oldest/bin/pytest --quiet -n $(WORKERS) --dist worksteal -m "not network and not papers and not long" tests

newest: .venv/ready ## Say what the newest releases of Flower and FLARE break, also the next that are not allowed
	@$(BIN)/python .ci/newest.py

docs: .venv/docs-ready ## Build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict

pictures: .venv/ready ## Draw the charts and the gallery of the documentation anew; pictures of reports need Chromium
	@$(BIN)/python docs/pictures/charts.py
	@$(BIN)/python docs/pictures/gallery.py

dist: .cache/dist/ready ## Build dist/: source archive, wheel, offline bundle; check, install and try them
	@rm -rf dist
	@.cache/dist/bin/python -m build --outdir dist >.cache/dist/log 2>&1 || { cat .cache/dist/log; exit 1; }
	@.cache/dist/bin/twine --no-color check --strict dist/*
	@.cache/dist/bin/python .ci/try_dist.py dist
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) .cache/dist/bin/python packaging/bundle.py dist/*.whl dist
	@.cache/dist/bin/python packaging/try_bundle.py dist/*-offline-*.tar

bench: warm ## Measure quality and speed beside peers; takes most of an hour
	@$(BIN)/python -W ignore benchmarks/speed.py
	@$(BIN)/python -W ignore benchmarks/quality.py

groups: .venv/ready ## Measure what groups of rows cost in inertia and in seconds; ten minutes
	@$(BIN)/python -W ignore benchmarks/groups.py

audit: .venv/ready ## Play attacks against groups of many kinds of rows; half an hour
	@$(BIN)/python -W ignore benchmarks/audit.py 3

claims: warm ## Say which measured numbers of the pages are old; measure the cheap ones again
	@nice -n 10 $(BIN)/python benchmarks/claims.py $(ARGS)

faults: .venv/ready ## Kill sites and coordinators of real federations; an hour. ARGS="100 --kills": any program
	@$(BIN)/python -W ignore benchmarks/faults.py $(ARGS)

hostile: .venv/ready ## Ask a site 10,000 hostile questions of each step; an hour
	@FEDCLUSTER_HOSTILE=10000 nice -n 10 $(BIN)/pytest --quiet -n 2 --dist worksteal tests/app/wire/test_hostile.py

mutants: .venv/ready ## Change the code a little, 60 times: do tests notice? An hour; ARGS="--seed 1"
	@nice -n 10 $(BIN)/python benchmarks/mutants.py $(ARGS)

reproduce: .venv/ready ## Make every figure and table of the papers into reproduction/; three quarters of an hour
	@$(BIN)/python -m reproduction

reproduce-quick: .venv/ready ## The same from few runs, into .cache/reproduction/; two minutes
	@$(BIN)/python -m reproduction --quick

format: .venv/ready ## Format the code and mend what can be mended
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

clean: ## Remove everything that was made here
	rm -rf .venv .cache .*_cache .coverage .hypothesis demo dist site
	find src tests reproduction benchmarks -name __pycache__ -prune -exec rm -rf {} +

$(VENV):
	@$(if $(shell $(PYTHON) -c 'import sys; print(sys.version_info >= (3, 11) or "")'),,\
	    $(error fedcluster needs Python 3.11 or newer, and $(PYTHON) is not. Try: make PYTHON=python3.12))
	@$(PYTHON) -m venv .venv

EXTRAS := '.[anndata,dask,duckdb,excel,fsspec,pandas,plot,privacy,sql,stats]'
EDITABLE := $(if $(WINDOWS),$(EXTRAS) --group test,'.[plot]' --group dev)

# Dependency groups need pip 25.1; Python 3.11 comes with an older one.
.venv/ready: pyproject.toml | $(VENV)
	@echo "Setting up .venv, once; this takes a minute or two."
	@$(call install,pip 25.1 or newer,$(BIN)/python,'pip>=25.1')
	@$(call install,fedcluster and what its tests need,$(BIN)/python,--editable $(EDITABLE))
	@touch $@

.venv/docs-ready: .venv/ready
	@$(call install,what builds the documentation,$(BIN)/python,--group docs)
	@touch $@

# In an environment of its own: twine and flwr need different versions of the same packages.
.cache/dist/ready: pyproject.toml | $(VENV)
	@$(BIN)/python -m venv --clear .cache/dist
	@$(call install,pip 25.1 or newer,.cache/dist/bin/python,'pip>=25.1')
	@$(call install,what builds and checks packages,.cache/dist/bin/python,--group dist)
	@touch $@

.cache/oldest/ready: pyproject.toml .ci/oldest.py | .venv/ready
	@$(PYTHON) -m venv --clear .cache/oldest
	@$(BIN)/python .ci/oldest.py > .cache/oldest/constraints.txt
	@$(call install,pip 25.1 or newer,.cache/oldest/bin/python,'pip>=25.1')
	@$(call install,fedcluster with the oldest libraries that it allows,.cache/oldest/bin/python,\
	    --constraint .cache/oldest/constraints.txt --editable $(EXTRAS) --group test)
	@touch $@

# $(call install,WHAT,PYTHON,ARGUMENTS of pip): a dot every two seconds, then the errors, if any.
# pip is told to leave out its warnings: most are about this machine, and none is about fedcluster.
# It compiles nothing, which takes half of its time: Python compiles the few files that it imports.
define install
printf '  %s ' '$(1)'; (while sleep 2 && kill -0 $$$$; do printf .; done) 2>/dev/null & dots=$$!; \
$(2) -m pip install -qq --no-compile $(3); status=$$?; kill $$dots; echo; exit $$status
endef
