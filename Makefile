# Every target does all of its own set-up in .venv; a second run finds it done.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.ok-
COMPILED := $(shell grep -o '^ *"canal[.][a-z_.]*"' canal/_util/build.py | tr -d ' "' | tr . /)
SOURCES := $(wildcard $(addsuffix .py,$(COMPILED)) $(addsuffix .pxd,$(COMPILED)) canal/rows/wire.pxd)
IS_COMPILED := $(BIN)/python -c 'import runpy, sys; sys.exit(not runpy.run_path("canal/_util/build.py")["compiled"])'
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

# Tests and benchmarks start hundreds of processes, which would compile all of canal each time.
export PYTHONDONTWRITEBYTECODE :=

# Beside the newest Spark, those that are tested too: queries on all of them but 3.5, which has no Python sources.
OLDER_SPARKS := 4.0 4.1
SPARK_QUERIES := $(addprefix tests/spark/test_,demo.py live.py types_in_spark.py apply_spark.py filters.py)
# Of versions, and a command.
define on_sparks
(for version in $(1); do echo "== Spark $$version"; PYTHONPATH=$(CURDIR)/$(VENV)/pyspark-$$version $(2) \
	-W ignore::pytest.PytestUnraisableExceptionWarning -W ignore::DeprecationWarning || exit 1; done)
endef

.PHONY: help demo spark-demo quick check test test-all free-threaded fresh docs matrix lint lint-ruff lint-mypy bench bench-spark soak figures asan build servers clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

help:
	@echo "make demo    a live shop in one process: changes, ack, rollback, restart"
	@echo "make spark-demo  a Delta table follows a table through Spark (Java 17)"
	@echo "make quick   the core without servers: seconds"
	@echo "make check   ruff, codespell, mypy, the core interpreted, the layers and the words, without servers: two minutes"
	@echo "make test    what a change can break, against real servers (CANAL_TEST_SERVERS=skip leaves those tests out)"
	@echo "make test-all  and what runs nightly: all server lines, older Sparks, large sizes, the whole suite interpreted"
	@echo "make free-threaded  tests of values and of threads on a Python without the interpreter's lock, which it builds"
	@echo "make fresh   make demo and make check in bare Debians, with and without a compiler (FRESH=trixie-gcc: one)"
	@echo "make docs    the site of docs/, in build/site; a broken link is an error"
	@echo "make matrix  the live tests on every server line and with their start-up options; makes docs/servers.md"
	@echo "make lint    ruff, codespell and mypy"
	@echo "make bench   every stage beside the other readers of binlogs, answers checked (BENCH=--quick: minutes)"
	@echo "make bench-spark  the Spark source beside ready Arrow, parquet and Debezium (Java; Maven for Debezium)"
	@echo "make soak    the long fault runs at full size, and the live tests with each start-up option"
	@echo "make figures  docs/reliability.md of what fault runs have found"
	@echo "make asan    the fuzzer and the parser's tests under the address sanitizer"
	@echo "make clean   remove what the others made"

# What is built already is used; else a build for a first look is enough.
demo: $(SETUP)cli $(if $(wildcard $(SETUP)build),$(SETUP)build,$(SETUP)fast)
	@$(BIN)/python examples/demo.py

spark-demo: $(SETUP)cli $(SETUP)spark $(SETUP)lake $(SETUP)build
	@$(BIN)/python examples/spark_demo.py

# What a change can break, with real servers. tests/programs/lanes.py runs several pytest processes side by side.
PYTEST := $(BIN)/python -m pytest -p no:cacheprovider
LANES := CANAL_PURE= $(BIN)/python -m tests.programs.lanes
SERVERLESS := not mutants and not mysql and not mariadb and not zookeeper and not target_server and not spark
test: $(SETUP)compiler $(SETUP)test $(SETUP)build servers
	@$(LANES)

# And what is too slow for each change: all server lines, older Sparks, large sizes, the whole suite interpreted.
test-all: free-threaded $(SETUP)compiler $(SETUP)test $(SETUP)build $(OLDER_SPARKS:%=$(SETUP)pyspark-%) servers
	@$(LANES) --all $(OLDER_SPARKS:%=--spark=%)

# Hours: make matrix LINES="mysql-5.7" runs one line.
matrix: $(SETUP)compiler $(SETUP)test $(SETUP)build servers
	$(BIN)/python -m tests.programs.matrix $(filter-out all,$(LINES))

lint: lint-ruff lint-mypy
lint-ruff: $(SETUP)lint
	$(BIN)/codespell canal tests docs examples benchmarks *.md *.toml Makefile
	$(BIN)/ruff check . && $(BIN)/ruff format --check -q . || { echo "run: ruff format ."; exit 1; }
lint-mypy: $(SETUP)lint $(SETUP)test
	$(BIN)/mypy

# The core without servers, in the build that is there.
QUICK := $(addprefix tests/,store sink meta rows parse/test_rows.py $(patsubst %,instance/test_%.py,delivery delivery_threads client_filter) \
	$(patsubst %,test_%.py,position gtid filter))
quick: $(SETUP)test
	$(PYTEST) -q -m '$(SERVERLESS) and not slow and not nightly' $(QUICK)

# Needs no compiler, server or JVM; mypy runs beside the tests.
check: lint-ruff $(SETUP)test
	@$(BIN)/mypy >$(VENV)/mypy.log 2>&1 & types=$$!; \
	CANAL_PURE=1 $(PYTEST) -q -m '$(SERVERLESS) and not slow and not nightly' $(QUICK) tests/test_architecture.py tests/test_words.py; tests=$$?; \
	wait $$types || tests=1; cat $(VENV)/mypy.log; exit $$tests

# In the build whose threads run at the same time; its Python is made of Debian's source, once.
FREE := $(VENV)/free-threaded
FREE_TESTS := tests/store tests/sink tests/formats $(patsubst %,tests/parse/test_%.py,crc damage decoder framing json roundtrip row_events rows) \
	$(patsubst %,tests/instance/test_%.py,decode_ahead delivery delivery_threads shared_by_threads slow_clients)
free-threaded: $(SETUP)compiler
	@tests/servers/free-threaded.sh $(FREE)
	@CANAL_PURE=0 $(FREE)/bin/python setup.py -q build_ext --inplace 2>$(VENV)/free.log || { tail -30 $(VENV)/free.log; exit 1; }
	CANAL_PURE=0 PYTHON_GIL=0 $(FREE)/bin/python -m pytest -p no:cacheprovider -m '$(SERVERLESS) and not slow' $(FREE_TESTS)

fresh:
	@$(PYTHON) -m tests.programs.fresh $(FRESH)

docs: $(SETUP)docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build && echo "build/site/index.html"

# BENCH="A latency --quick" is a part of it; BENCH=--write makes docs/benchmarks.md. Peers are built with go, mvn and npm where they are.
bench: $(SETUP)compiler $(SETUP)test $(SETUP)bench $(SETUP)build servers
	$(BIN)/python -m benchmarks --json $(VENV)/benchmarks.json $(BENCH)

bench-spark: $(SETUP)compiler $(SETUP)test $(SETUP)build servers
	$(BIN)/python benchmarks/spark_run.py

soak: $(SETUP)compiler $(SETUP)test $(SETUP)build $(patsubst %,$(SETUP)pyspark-%,3.5 $(OLDER_SPARKS)) servers
	$(call on_sparks,$(OLDER_SPARKS),$(BIN)/python -m pytest -m spark $(SPARK_QUERIES))
	$(call on_sparks,3.5,$(BIN)/python -m pytest tests/spark/test_apply_spark.py -k plain_loop)
	CANAL_SOAK=full $(BIN)/python -m pytest -m slow --timeout=0 -o faulthandler_timeout=0
	CANAL_HYPOTHESIS=deep $(BIN)/python -m pytest --timeout=0 -o faulthandler_timeout=0 -m '$(SERVERLESS) and not slow'
	$(BIN)/python -m tests.programs.matrix --whole mysql-9.7 mariadb-10.11

# Of what runs with --record tests/reliability.jsonl have added; it runs nothing.
figures: $(SETUP)test
	$(BIN)/python -m tests.programs.reliability

# A copy of the tree with extensions of its own, so that those in use stay as they are.
ASAN := $(VENV)/asan
asan: $(SETUP)compiler $(SETUP)test
	@rm -rf $(ASAN) && mkdir -p $(ASAN)
	@cp -r canal docs tests setup.py pyproject.toml $(ASAN) && find $(ASAN) -name '*.so' -delete
	cd $(ASAN) && CANAL_PURE=0 CANAL_SANITIZE=1 $(CURDIR)/$(BIN)/python setup.py -q build_ext --inplace
	cd $(ASAN) && export CANAL_PURE=0 PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16 UBSAN_OPTIONS=halt_on_error=1 && \
	export LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libubsan.so)" && \
	$(CURDIR)/$(BIN)/python -m tests.programs.fuzz --events 100000 && \
	$(CURDIR)/$(BIN)/python -m pytest -m '$(SERVERLESS)' tests/parse tests/formats/test_columnar.py tests/formats/test_arrow.py tests/formats/test_hand_over.py

build: $(SETUP)build

servers:
	@if [ "$$CANAL_TEST_SERVERS" = skip ]; then echo "SERVER TESTS ARE SKIPPED: CANAL_TEST_SERVERS=skip"; \
	else tests/servers/setup.sh $(filter-out all,$(LINES)); fi

clean:
	rm -rf $(VENV) .servers build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find canal \( -name '*.so' -o -name '*.c' \) -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(SETUP)venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=...")'
	@rm -rf $(VENV)
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install 'setuptools>=77' 'wheel' 'Cython>=3.1'
	@touch $@

$(SETUP)compiler: $(SETUP)venv tests/servers/compiler.sh
	@tests/servers/compiler.sh $(BIN)/python
	@rm -f $(SETUP)build
	@touch $@

# One install per set of extras; the extensions are built apart, so that a changed source does not install again.
$(SETUP)cli $(SETUP)test $(SETUP)bench $(SETUP)spark $(SETUP)lake $(SETUP)lint $(SETUP)docs: $(SETUP)%: $(SETUP)venv pyproject.toml
	@echo "installing canal-cdc[$*]"
	@CANAL_PURE=1 $(PIP) install --no-build-isolation -e '.[$*]'
	@touch $@

# A download of 430 MB each, which pip keeps.
$(patsubst %,$(SETUP)pyspark-%,3.5 $(OLDER_SPARKS)): $(SETUP)pyspark-%: | $(SETUP)test
	@echo "installing pyspark $* for the tests"
	@rm -rf $(VENV)/pyspark-$*
	@$(PIP) install --no-deps --target $(VENV)/pyspark-$* 'pyspark==$*.*'
	@touch $@

# Where there is a compiler, a module that does not compile is an error. A fast build is made again from the same C, for speed.
define compile
pure=1; if tests/servers/compiler.sh $(BIN)/python check; then pure=0; fi; \
	CANAL_PURE=$$pure $(1) $(BIN)/python setup.py -q build_ext --inplace $(2) 2>$(VENV)/build.log || { tail -30 $(VENV)/build.log; exit 1; }
@echo "build: $$(CANAL_PURE= $(IS_COMPILED) && echo compiled || echo interpreted)"
@touch $@
endef

$(SETUP)build: $(SETUP)venv $(SOURCES) setup.py canal/_util/build.py
	@$(call compile,,$(if $(wildcard $(SETUP)fast),--force))
	@rm -f $(SETUP)fast

$(SETUP)fast: $(SETUP)venv $(SOURCES) setup.py canal/_util/build.py
	@$(call compile,CANAL_FAST=1)
