# `make demo` and `make test` need Python (3.11 or newer) and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-slow lint bench clean

demo: $(STAMP)
	$(BIN)/gnnrp rp

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

# On generated graphs; with DATA=DIR, which holds the data sets named, on real ones.
OUT ?= bench
BENCH := $(if $(DATA),--data-dir $(DATA)) --output $(OUT)
WHOLE := $(if $(DATA),--curve cora --sweep arxiv --powers 1 2 3 4 5 6 7 8 9 10 \
	--commands sbm cora arxiv tolokers "cs --split 0" "physics --split 0" cs physics)
bench: $(STAMP)
	$(BIN)/python -m experiments.benchmark_spmm $(BENCH)
	$(BIN)/python -m experiments.benchmark_rp $(BENCH) $(WHOLE)
	$(BIN)/python -m experiments.benchmark_scaling --output $(OUT) $(if $(DATA),--most 120000000)

# One environment; made again when the requirements change. neural-tangents comes without
# what it names as needed: TensorFlow, of which nothing here makes use.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[test]'
	$(PIP) --no-deps neural-tangents==0.6.5 'frozendict>=2.4'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
