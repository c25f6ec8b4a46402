# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets. Everything is built and kept under build/ (sanitizers and fuzzers under build-*/).
SHELL := /bin/bash
export JOBS ?= $(shell nproc)
PY = $(CURDIR)/build/deps/venv/bin/python
SCALE ?= 1
SECONDS ?= 120
SEED ?= 1

.PHONY: help deps deps-test build demo check test unit sql sqlgen cluster python ray apps interop sim sim-planted chaos bench bench-peers bench-udf bench-udf-memory format lint asan ubsan tsan fuzz clean
help: ## this list
	@awk -F':.*## ' '/^[a-z -]+:.*## / { printf "  make %-30s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps:
	@deps/fetch.sh build
deps-test:
	@deps/fetch.sh test

build: deps ## build/brant, build/brant-worker, build/brant-executor, build/libbrant.so
	@[ -f build/build.ninja ] || cmake -G Ninja -S . -B build >/dev/null
	@cmake --build build -j $(JOBS)
	@ln -sf build/compile_commands.json compile_commands.json

demo: deps-test build ## TPC-H scale 1 on 3 workers, all 22 queries, compared with DuckDB
	@$(PY) scripts/demo.py --scale $(SCALE)

unit sim sql cluster python ray apps interop: deps-test ## one kind of test
	@scripts/test $@
sqlgen: deps-test build ## generated queries against DuckDB: SEEDS=N of them (1000), or SEEDS=FROM:TO; failures are made small
	@$(PY) tests/sql/generate/run.py $(or $(SEEDS),1000)
sim-planted: deps-test ## is each bug of tests/sim/planted caught by the simulation?
	@tests/sim/planted.py
chaos: deps-test build ## real processes under faults: every test, then random runs for SECONDS (120) from SEED (1)
	@scripts/test chaos-all
	@$(PY) tests/chaos/run.py --seconds $(SECONDS) --seed $(SEED)
check: deps-test ## lint, build, unit tests, simulation, interop: < 3 minutes
	@scripts/test quick
test: deps-test ## installs, builds and runs every test; ends with "N passed, N failed"
	@scripts/test all

bench: deps-test build ## ratios side by side; docs/benchmarks.md says how to read them
	@$(PY) bench/run.py
bench-peers: deps-test build ## brant beside Daft, Spark, Sail, Vane and DuckDB: bench/peers/README.md
	@$(PY) bench/peers/run.py --scale $(SCALE)

bench-udf: deps-test build ## what a function costs a row, beside Daft's and Ray Data's (installed into build/peers)
	@$(PY) bench/udf_bench.py
bench-udf-memory: deps-test build ## 10 GB through a function, each worker with all its processes below 1 GB
	@$(PY) bench/udf_memory.py

format: deps-test ## clang-format over our sources
	@git ls-files '*.c' '*.h' | xargs clang-format -i
lint: deps-test ## formatting, layering, spelling of rules
	@scripts/lint

asan: deps-test ## unit tests and TPC-H under AddressSanitizer and UBSan
	@scripts/test asan
ubsan: asan ## the same build: both sanitizers run together
tsan: deps-test ## tests of what has threads and no DuckDB under ThreadSanitizer
	@scripts/test tsan
fuzz: deps-test ## every fuzzer for FUZZ_SECONDS (10) each
	@scripts/test fuzz
clean: ## everything but the fetched dependencies and data
	@find build -mindepth 1 -maxdepth 1 ! -name deps ! -name data -exec rm -rf {} + ; rm -rf build-*
