# Each target sets up what it needs in .venv. `make demo` and `make test` work in a fresh clone with Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Tests keep to a store of their own; `make demo` uses the user's (SEEDBENCH_DATA, default ~/.cache/seedbench).
TEST_STORE := $(CURDIR)/.store
# Where developers keep the official data; absent elsewhere.
OFFICIAL := ../shared/data
# Threads that spin while they wait are ruinous on shared cores.
THREADS := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE

.PHONY: demo test lint install reference clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,search,dev]"
	@touch $@

demo: $(INSTALLED)
	@OMP_WAIT_POLICY=PASSIVE TRANSFORMERS_VERBOSITY=error sh docs/demo.sh $(BIN)/seedbench

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint
	@for suite in alfworld webshop searchqa; do \
	  if [ -d $(OFFICIAL)/$$suite ]; then SEEDBENCH_DATA=$(TEST_STORE) $(BIN)/seedbench data fetch $$suite --from $(OFFICIAL)/$$suite || exit 1; \
	  else echo "no official data at $(OFFICIAL)/$$suite: the tests that need it are skipped"; fi; done
	-@SEEDBENCH_DATA=$(TEST_STORE) $(BIN)/seedbench models get smollm2-135m
	SEEDBENCH_DATA=$(TEST_STORE) HF_HUB_OFFLINE=1 $(THREADS) $(BIN)/pytest -n 2 --dist worksteal

# The upstream engine, for engine="reference" and the live comparison tests. Its planner is compiled (cmake, g++).
reference: $(INSTALLED)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip wheel --no-deps -w wheels fast-downward-textworld==20.6.4
	$(BIN)/python -m pip install --no-deps alfworld==0.4.2 textworld==1.7.0 jericho==3.3.1 wheels/fast_downward_textworld-*.whl
	$(BIN)/python -m pip install -c constraints.txt numpy tqdm networkx more_itertools tatsu==5.8.3 hashids mementos pyyaml termcolor prompt_toolkit

clean:
	rm -rf $(VENV) .store dist build .mypy_cache .pytest_cache .ruff_cache
