# `make demo` and `make test` need Python (3.11 or newer) and make, nothing else.
# Of another Python: `make test PYTHON=python3.13 VENV=.venv-3.13`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_INSTALL := python -m pip install --quiet --disable-pip-version-check
NEURAL_TANGENTS := neural-tangents==0.6.5 'frozendict>=2.4'

.PHONY: demo check unit test test-slow test-floor test-newest has-newest test-ogb package lint \
	docs links bench reproduce beyond study notebooks clean

demo: $(STAMP)
	$(BIN)/gnnrp rp

# A minute, once compiled programs are cached: what to run after each change.
check: $(STAMP)
	$(MAKE) --no-print-directory --jobs=2 --output-sync lint unit

UNITS := $(addprefix tests/,propagation kernels graph sparse models test_metrics.py)
unit: $(STAMP)
	$(BIN)/python -m pytest -n 2 -q -m unit $(UNITS)

# All fast tests. Compiled programs are cached; not with GNNRP_COMPILATION_CACHE=off.
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m slow

# What depends on others' inside, on the oldest release of each that pyproject.toml admits.
FLOOR := .venv-floor
OLDEST := $(FLOOR)/oldest.txt
DEPENDENT := $(patsubst %,tests/%.py,sparse/test_sparse kernels/gntk/test_activations \
	kernels/gntk/test_recursion kernels/gntk/test_blocked kernels/gntk/test_neural_tangents \
	tables/test_files models/test_gnn models/test_training runtime/test_checkpoints distributed/test_sharded \
	runtime/test_atomic_files io/test_downloads commands/test_cli process/test_interrupts)
test-floor: $(FLOOR)/.installed
	$(FLOOR)/bin/python -m pytest -n 2 -m "not slow" $(DEPENDENT)

$(FLOOR)/.installed: pyproject.toml
	$(PYTHON) -m venv --clear $(FLOOR)
	sed -n 's/^ *"\([a-z-]*\)>=\([^"]*\)".*/\1==\2/p' pyproject.toml > $(OLDEST)
	$(FLOOR)/bin/$(PIP_INSTALL) -e '.[test]' -c $(OLDEST)
	$(FLOOR)/bin/$(PIP_INSTALL) --no-deps $(NEURAL_TANGENTS)
	touch $@

# The same on the newest of everything, Python too: pyenv's, or the one on the PATH.
# No stamp: what is newest changes while pyproject.toml does not.
NEWEST := .venv-newest
PYTHON_NEWEST ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.13*/bin/python3.13) \
	python3.13)
test-newest:
	$(PYTHON_NEWEST) -m venv $(NEWEST)
	$(NEWEST)/bin/$(PIP_INSTALL) --upgrade --upgrade-strategy eager -e '.[test]'
	$(NEWEST)/bin/$(PIP_INSTALL) --no-deps $(NEURAL_TANGENTS)
	$(NEWEST)/bin/python -m pytest -n 2 -m "not slow" $(DEPENDENT)

has-newest:
	$(PYTHON_NEWEST) -c 'import venv'

# What others install, in dist; the wheel alone, in an empty environment, is tried out.
PACKAGE := .venv-package
package: $(STAMP)
	rm -rf dist $(PACKAGE)
	$(BIN)/python -m build --sdist --wheel --outdir dist
	$(PYTHON) -m venv $(PACKAGE)
	$(PACKAGE)/bin/$(PIP_INSTALL) dist/*.whl
	$(BIN)/python -m pytest tests/package.py

# Beside OGB and PyG themselves. torch comes first, so that one for CPUs can be named:
# make test-ogb TORCH='torch==2.13.0 --index-url URL'. The bare version may well be
# CUDA's on Linux: it serves too, and is gigabytes. For another: remove $(OGB).
OGB := .venv-ogb
TORCH ?= torch==2.13.0
test-ogb: $(OGB)/.installed
	$(OGB)/bin/python -m pytest tests/ogb_package.py

$(OGB)/.installed: pyproject.toml
	$(PYTHON) -m venv --clear $(OGB)
	$(OGB)/bin/$(PIP_INSTALL) $(TORCH)
	$(OGB)/bin/$(PIP_INSTALL) -e '.[test,ogb]' torch_geometric
	touch $@

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# The site, in docs/_build/html; warnings are errors, and every name must be known.
# `links` asks for the addresses outside of it, and needs a network.
SITE := $(BIN)/python -m sphinx -W --keep-going -n -q -c docs
docs: $(STAMP)
	$(SITE) . docs/_build/html

links: $(STAMP)
	$(SITE) -b linkcheck . docs/_build/links

# On generated graphs; with DATA=DIR, which holds the datasets named, on real ones.
OUT ?= bench
BENCH := $(if $(DATA),--data-dir $(DATA)) --output $(OUT)
WIDE := $(if $(DATA),--dataset cora --large pubmed --sparse arxiv)
FINITE := $(if $(DATA),--dataset cora --large pubmed)
WHOLE := $(if $(DATA),--curve cora --sweep arxiv --powers 1 2 3 4 5 6 7 8 9 10 \
	--commands sbm cora arxiv tolokers cs physics "cs --splits random" "physics --splits random")
bench: $(STAMP)
	$(BIN)/python -m experiments.benchmarks.spmm $(BENCH)
	$(BIN)/python -m experiments.benchmarks.rp $(BENCH) $(WHOLE)
	$(BIN)/python -m experiments.benchmarks.gntk $(BENCH) $(WIDE)
	$(BIN)/python -m experiments.benchmarks.ntk $(BENCH) $(FINITE)
	$(BIN)/python -m experiments.benchmarks.scaling --output $(OUT) $(if $(DATA),--most 120000000)

# What has a record is not made again; the report is. GNNRP_DATA serves as DATA does.
REPRODUCED ?= reproduced
EXPERIMENTS := table1_ogb table2_convergence table3_datasets table4_homophilic \
	table5_heterophilic figure2_rp_curve figure3_ntk_alignment figure4_ntk_blocks \
	analytic_vs_empirical inductive_pmlp generalization heterophily
reproduce: $(EXPERIMENTS:%=$(REPRODUCED)/%.json)
	$(BIN)/python -m experiments.report.documents $(REPRODUCED)

$(REPRODUCED)/%.json: | $(STAMP)
	$(BIN)/python -m experiments.paper.$* --output $(REPRODUCED) \
		$(if $(DATA),--data-dir $(DATA)) > /dev/null

# Similarities that validation chooses, beside networks; wide GCNs on large graphs.
beyond: $(REPRODUCED)/beyond.json $(REPRODUCED)/gntk_large.json
	$(BIN)/python -m experiments.report.documents $(REPRODUCED)

# Many hosts, predicted from parted graphs; about 9 GB of memory.
STUDY ?= studied
study: $(STAMP)
	$(BIN)/python -m experiments.partition.study --output $(STUDY) \
		$(if $(DATA),--data-dir $(DATA)) > /dev/null

# The .py are what is edited; the .ipynb beside them are made of these, pictures inside.
notebooks: $(STAMP)
	$(BIN)/jupytext --quiet --to ipynb --execute notebooks/*.py

# One environment; made again when the requirements change. neural-tangents comes without
# what it names as needed: TensorFlow, of which nothing here makes use.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP_INSTALL) -e '.[test,docs]'
	$(BIN)/$(PIP_INSTALL) --no-deps $(NEURAL_TANGENTS)
	touch $@

clean:
	rm -rf $(VENV) $(FLOOR) $(NEWEST) $(OGB) $(PACKAGE) build dist docs/_build docs/api *.egg-info
