# One word per job. Each creates the environment on first use; a stamp keeps it from being installed again.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One thread per process: the kernels are compiled, and workers and tests share the cores.
THREADS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
# Compiled kernels stay in the environment; the package itself keeps them apart by the content of their sources.
ENVIRONMENT = $(THREADS) NUMBA_CACHE_DIR=$(CURDIR)/$(VENV)/kernels
PYTEST = $(ENVIRONMENT) $(BIN)/python -m pytest -n 2

.DEFAULT_GOAL := help
.PHONY: help install run test test-slow lint format bench bench-quick campaign notebooks docs clean

help:
	@echo "make install    the environment, and the simulation's kernels compiled ahead: about a minute, once"
	@echo "make run        the whole loop on the default preset; ends with the path of the report"
	@echo "                (options: make run ARGS='--preset testbed --demo')"
	@echo "make test       the tests that take seconds"
	@echo "make test-slow  all tests"
	@echo "make lint       ruff, mypy --strict and the import rules of the rooms"
	@echo "make format     let ruff rewrite the sources"
	@echo "make bench      every script under benchmarks/"
	@echo "make bench-quick  one figure of each results page again, within its tolerance; at most 15 minutes"
	@echo "make campaign   every campaign at full size (kills, interrupts, fuzz, ...); hours; ends at the first finding"
	@echo "make notebooks  build and run the case studies under examples/"
	@echo "make docs       these pages as a site: site/index.html"
	@echo "make clean      remove the environment and all caches"

# torch goes first, alone: a local build of the pinned version is then kept by the second install.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt torch
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]'
	touch $@

# What the first run would compile, compiled ahead; what is there already is not compiled again.
$(VENV)/.compiled: $(STAMP)
	$(ENVIRONMENT) $(BIN)/attribution-sched compile
	touch $@

install: $(VENV)/.compiled

run: $(STAMP)
	$(ENVIRONMENT) $(BIN)/attribution-sched run $(ARGS)

test: $(STAMP)
	$(PYTEST) -m "not slow"

test-slow: $(STAMP)
	$(PYTEST)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	set -e; for script in $(filter-out benchmarks/campaign_%,$(wildcard benchmarks/*.py)); do \
		echo "== $$script"; $(ENVIRONMENT) $(BIN)/python $$script; \
	done

# One figure of each results page, measured again in small and compared within its tolerance.
bench-quick: $(STAMP)
	$(ENVIRONMENT) $(BIN)/python benchmarks/quick.py

# Campaigns: what breaks the package is looked for at length. Each is a script with its arguments (commas for spaces),
# prints what it tried and what it found, and fails if it found anything. Small runs of them are among the tests.
CAMPAIGNS := benchmarks/campaign_fuzz.py,--cases,54000 benchmarks/campaign_journal.py,--runs,5000 \
	-m,tests.campaigns.fail_points,--runs,8000 \
	-m,tests.campaigns.fail_points,--runs,1500,--session,feedback \
	-m,tests.campaigns.fail_points,--runs,300,--session,hi-ppo \
	-m,tests.campaigns.fail_points,--runs,200,--session,train \
	-m,tests.campaigns.kills,--kills,500,--world,small -m,tests.campaigns.kills,--kills,200,--world,everything \
	-m,tests.campaigns.kills,--kills,100,--world,cross-domain-easy -m,tests.campaigns.kills,--kills,200,--world,migration \
	-m,tests.campaigns.executor_kills,--kills,1000 -m,tests.campaigns.executor_kills,--kills,200,--engine,slurm \
	-m,tests.campaigns.executor_kills,--kills,100,--engine,ray \
	-m,tests.campaigns.soak,--minutes,10 -m,tests.campaigns.repeatable -m,tests.campaigns.disturbed,--runs,50 \
	-m,tests.campaigns.energy,--worlds,500 -m,tests.campaigns.large,--placements,40 \
	-m,tests.campaigns.large,--placements,40,--policy,hi-ppo

campaign: $(STAMP)
	set -e; for campaign in $(CAMPAIGNS); do \
		echo "== $$campaign" | tr , ' '; $(ENVIRONMENT) $(BIN)/python $$(echo $$campaign | tr , ' '); \
	done

# Its own stamp: nobody else needs what builds the site.
$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[docs]'
	touch $@

docs: $(VENV)/.docs
	$(BIN)/python docs/make_sources.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

notebooks: $(STAMP)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[notebooks]'
	$(ENVIRONMENT) $(BIN)/python examples/case_studies/build.py

clean:
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
