# Everything there is to remember: run, test, coverage, lint, bench, gpu, docs. Each sets itself up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
BUILD_INPUTS := pyproject.toml setup.py constraints.txt CMakeLists.txt $(shell find csrc -name '*.cpp' -o -name '*.h')

.PHONY: run test coverage lint bench gpu docs clean

run: $(VENV)/.installed-run      ## embed the example corpus with real weights and search it
	$(BIN)/python examples/run.py

test: $(VENV)/.installed-dev     ## the whole test suite
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n logical --dist loadfile --no-loadscope-reorder

coverage: $(VENV)/.installed-dev ## the whole test suite, and which lines it ran; takes much longer
	$(BIN)/python -m pytest --cov --cov-report=term

lint: $(VENV)/.installed-dev     ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy encoder_engine kernels tests benchmarks examples docs setup.py conftest.py

bench: $(VENV)/.installed-dev    ## measure beside the peers, in minutes: benchmark-report/report.html
	$(BIN)/python -m benchmarks peers --setup
	$(BIN)/python -m benchmarks quick

gpu:                             ## GPU tests, then the benchmark table; uses $(PYTHON) as it is
	$(PYTHON) -m benchmarks.commands.gpu

docs: $(VENV)/.installed-dev     ## write docs/api.md and docs/families.md from the code
	$(BIN)/python docs/make_api.py
	$(BIN)/python docs/make_families.py

clean:
	rm -rf build dist *.egg-info encoder_engine/_native*.so .coverage .pytest_cache .mypy_cache .ruff_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-run: $(BIN)/python $(BUILD_INPUTS)
	$(INSTALL) -e '.[minilm]'
	touch $@

$(VENV)/.installed-dev: $(BIN)/python $(BUILD_INPUTS)
	$(INSTALL) -e '.[dev]'
	touch $@ $(VENV)/.installed-run
