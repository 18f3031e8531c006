# `make demo` and `make test` need nothing but Python 3.11 or newer and a C compiler. Each makes its
# environment in .venv, with the versions of constraints.txt, and uses it again while neither that
# file nor pyproject.toml changes.

SHELL := /bin/sh
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2
PYTEST_ARGS ?=
COVERAGE_FLOOR ?= 80
BENCH_ARGS ?=
DEMO_ARGS ?=

# The first Python that is new enough; PYTHON=... on the command line decides otherwise.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo "$$python"; break; }; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
# Hundreds of tests start processes, each of which would compile all sources without bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test fast fast-files coverage lint format bench changelog hooks dist lock clean

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */  make \1|/' \
		| awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'

demo: $(VENV)/.installed-tune  ## tune four computations and race them against libraries
	@$(BIN)/python examples/demo.py $(DEMO_ARGS)

# Nothing hides behind the first failure: every check runs, lint beside the tests, and says all it
# has to say at once; pytest's summary comes last.
test: $(VENV)/.installed-dev  ## everything a change must pass: lint, types, import rules, tests
	@status=0; log=$$(mktemp); \
	{ $(MAKE) --no-print-directory lint >$$log 2>&1; found=$$?; echo; cat $$log; rm -f $$log; \
		exit $$found; } & \
	echo "$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)"; \
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS) || status=1; \
	wait $$! || status=1; \
	test $$status = 0 || echo "make test: something above failed" >&2; \
	exit $$status

# What `make fast` leaves out of `tests/schedules` and `tests/db`: spaces, rewrites, the reference,
# PostgreSQL, killed processes.
SLOW := schedules/test_rules_% schedules/test_re% schedules/test_dropped_% schedules/test_public_% \
	schedules/test_outline% schedules/test_plans% schedules/test_affine_brute% \
	db/test_postgres_% db/test_durability% db/test_damaged_%
FAST := $(filter-out $(addprefix tests/,$(SLOW)),$(wildcard tests/schedules/test_*.py tests/db/test_*.py))

fast: $(VENV)/.installed-dev  ## the tests of daily work, in a minute
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(FAST) $(PYTEST_ARGS)

fast-files:
	@echo $(FAST)

# Coverage makes these tests take 2.7 times as long, and would make the whole suite do so.
coverage: $(VENV)/.installed-dev  ## which lines of schedules and db make fast runs, with a floor
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --cov=schedules --cov=db \
		--cov-fail-under=$(COVERAGE_FLOOR) $(FAST) $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev  ## ruff, mypy --strict, import-linter
	@status=0; \
	for check in "ruff check ." "ruff format --check ." "mypy" "lint-imports --no-logo"; do \
		echo "$(BIN)/$$check"; $(BIN)/$$check || status=1; \
	done; \
	exit $$status

format: $(VENV)/.installed-dev  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

changelog: $(VENV)/.installed-dev  ## what the next release will say, from changelog.d
	@$(BIN)/towncrier build --draft --version unreleased

dist: $(VENV)/.installed-dev  ## the wheel and the source archive, in dist/
	$(BIN)/hatchling build --directory dist

hooks: $(VENV)/.installed-dev  ## let git run the checks of lint before a commit
	@$(PIP) install pre-commit
	$(BIN)/pre-commit install

bench: $(VENV)/.installed-dev  ## measure everything the README and docs claim (benchmarks/README.md)
	$(BIN)/python -m benchmarks.run $(BENCH_ARGS)

# Versions come from a new environment, so that nothing installed by hand gets in.
lock: | $(VENV)/.python  ## resolve every version again and write constraints.txt
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip --disable-pip-version-check --quiet install \
		hatchling editables '.[dev]'
	{ echo "# Versions the tests passed with. Made by 'make lock'; do not edit."; \
	  $(VENV)-lock/bin/python -m pip --disable-pip-version-check freeze --exclude tilewright; \
	} > constraints.txt
	rm -rf $(VENV)-lock

clean:  ## remove the environment and everything made by tools
	rm -rf $(VENV) $(VENV)-lock build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache .demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "Tilewright needs Python 3.11 or newer; none was found." \
		"Name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tilewright needs Python" \
		"3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make environments;" \
		"on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed-tune: pyproject.toml constraints.txt | $(VENV)/.python
	@echo "installing what tuning needs into $(VENV)"
	@$(PIP) install --constraint constraints.txt hatchling editables
	@$(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[tune,plot]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/.python
	@echo "installing what the tests need into $(VENV)"
	@$(PIP) install --constraint constraints.txt hatchling editables
	@$(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@ $(VENV)/.installed-tune
