# make lab        open the notebooks in JupyterLab
# make test       lint, helper tests, strict nbval on every notebook, and a browser where there is one
# make notebooks  run every notebook in place and store its outputs
# make student    notebooks to hand out: without solutions, and marked for nbgrader
# make book       the notebooks as a site, in build/book
# make address OWNER/NAME   the repository's address, everywhere it stands
# make evidence   every claim on other seeds, texts and processors, as tests/evidence.md (hours)
# make bench      speed, as ratios inside one run
# make base       train the base model of notebook 10 anew (a quarter of an hour)
# make gpu-check  what only a GPU can tell, and the notebooks' claims on it, as JSON
# make lint       ruff over code and notebooks, and the workflow files
# make clean      remove .venv and every cache

PYTHON ?= python3
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt
NOTEBOOKS := $(wildcard notebooks/*.ipynb)
PYODIDE := book/node_modules/pyodide/compiled.zip
NBVAL := $(BIN)/python -m pytest --nbval --nbval-current-env --nbval-cell-timeout 600 -p no:cacheprovider

.PHONY: lab test notebooks evidence student book address bench base gpu-check lint clean install
.DEFAULT_GOAL := lab

# A stamp for each set of packages: make installs again only when a list of dependencies changed.
$(VENV)/.lab: pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10))" \
	  || { echo "Python 3.10 or newer is needed: make PYTHON=/path/to/python3 lab"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable ".[lab]"
	@touch $@

$(VENV)/.test: $(VENV)/.lab
	$(PIP) --editable ".[lab,test,peers]"
	@touch $@

install: $(VENV)/.lab

lab: $(VENV)/.lab
	$(BIN)/jupyter lab --notebook-dir notebooks

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --offline --quiet .github/workflows

test: $(VENV)/.test lint $(PYODIDE)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"
	$(NBVAL) -n 2 --dist loadfile $(NOTEBOOKS)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow

notebooks: $(VENV)/.test
	$(BIN)/python -m tests.run_notebooks $(NOTEBOOKS)

evidence: $(VENV)/.test
	$(BIN)/python -m tests.evidence

student: $(VENV)/.test
	$(BIN)/python -m course.hand_out --to build

# The Python of the planner's page. Without npm, or a network, the site is built without it.
$(PYODIDE): book/package-lock.json book/compile.mjs
	npm ci --prefix book && node book/compile.mjs $(dir $@)python_stdlib.zip $@ \
	  || echo "npm did not bring in Pyodide: the site is built, and its planner says that it cannot run"

book: $(VENV)/.test $(PYODIDE)
	$(BIN)/python -m sphinx --quiet --jobs auto --fail-on-warning --keep-going --conf-dir book . build/book

# The word after the target is no target of its own.
ifeq (address,$(firstword $(MAKECMDGOALS)))
TO := $(word 2,$(MAKECMDGOALS))
ifneq (,$(TO))
.PHONY: $(TO)
$(TO): ;
endif
endif

address:
	@$(PYTHON) -m book.address $(TO)

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks

base: $(VENV)/.lab
	$(BIN)/python -m helpers.base

gpu-check: $(VENV)/.lab
	$(BIN)/python -m benchmarks.gpu_check

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist book/node_modules
	find . -name __pycache__ -o -name .ipynb_checkpoints | xargs rm -rf
