# Everything sets itself up: `make demo` and `make test` work from a fresh clone with Python 3.10+, a C
# compiler and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PLUGIN ?= fixtures/plugins/mlp.so

# Three processes: two hosts must not meet in one, and PyTorch is one (see tests/conftest.py).
PYTEST = $(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST_ARGS)

# What goes into the wheel: a change of any of it means a new installation.
SOURCES := pyproject.toml $(shell find abi inspect loader executor native -type f -not -path '*/__pycache__/*')
C_SOURCES := $(shell find native tests -type f -name '*.[ch]' -o -type f -name '*.cpp')

.PHONY: demo test lint format bench wheel docs generate tables clean help
.DELETE_ON_ERROR:

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(VENV)/.core ## audit a real plugin, then run it without PyTorch
	@echo '$$ aoti-inspect $(PLUGIN)'
	@$(BIN)/aoti-inspect $(PLUGIN)
	@echo
	@echo '$$ aoti-run $(PLUGIN) --input $(PLUGIN:.so=.npz) --bench 1000'
	@$(BIN)/aoti-run $(PLUGIN) --input $(PLUGIN:.so=.npz) --bench 1000

test: $(VENV)/.test ## run the tests
	$(PYTEST) tests/abi tests/inspect tests/tools tests/test_repository.py tests/test_behaviours.py
	$(PYTEST) tests/native
	$(PYTEST) tests/loader tests/executor

lint: $(VENV)/.lint ## ruff, mypy --strict, import layers, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(C_SOURCES)
	$(BIN)/mypy
	$(BIN)/mypy tools
	PYTHONPATH=abi:inspect:loader:executor $(BIN)/lint-imports

format: $(VENV)/.lint ## format the sources
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(C_SOURCES)

bench: $(VENV)/.test ## measure, side by side with the peers
	$(BIN)/python benchmarks/bench_inspect.py
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python benchmarks/bench_artifacts.py
	$(BIN)/python benchmarks/bench_cost.py
	$(BIN)/python benchmarks/bench_run.py

docs: $(VENV)/.core ## write the pages of the rules and the schema of the report anew
	$(BIN)/python docs/generate_rules.py
	$(BIN)/python docs/generate_schema.py

generate: $(VENV)/.venv ## write the C sources that repeat tables of aoti_abi anew
	$(BIN)/python native/generate.py

tables: $(VENV)/.venv ## scan PyTorch's headers: all known versions, or TORCH=2.N; CHECK=1 compares
	$(BIN)/python tools/scan_torch.py $(if $(CHECK),--check) $(TORCH)

wheel: $(VENV)/.venv ## build the wheel into dist/
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

clean: ## remove what make built
	rm -rf $(VENV) build dist

$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("aoti-toolkit needs Python 3.10 or newer")'
	@echo 'setting up $(VENV)'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.venv $(SOURCES)
	@echo 'building and installing the package'
	@$(BIN)/pip install --quiet --disable-pip-version-check '.[blas]' numpy
	@touch $@

$(VENV)/.test: $(VENV)/.venv $(SOURCES)
	@echo 'building and installing the package, with what its tests need'
	@$(BIN)/pip install --quiet --disable-pip-version-check '.[test]'
	@touch $@ $(VENV)/.core

$(VENV)/.lint: $(VENV)/.venv pyproject.toml
	@echo 'installing the linters'
	@$(BIN)/pip install --quiet --disable-pip-version-check '.[lint]'
	@touch $@
