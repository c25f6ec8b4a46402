# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets. Everything is built and kept under build/ (sanitizers and fuzzers under build-*/).
SHELL := /bin/bash
BUILD ?= build
JOBS ?= $(shell nproc)
PY = $(CURDIR)/build/deps/venv/bin/python
CMAKE = cmake -G Ninja -S . -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
SCALE ?= 1

.PHONY: help deps deps-test build demo check test unit sql cluster interop sim bench format lint asan ubsan tsan fuzz clean
help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps:
	@deps/fetch.sh build
deps-test:
	@deps/fetch.sh test

$(BUILD)/build.ninja: CMakeLists.txt | deps
	@$(CMAKE) -B $(BUILD) >/dev/null
build: deps ## build/brant, build/brant-worker, build/brant-executor, build/libbrant.so
	@[ -f $(BUILD)/build.ninja ] || $(CMAKE) -B $(BUILD) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)
	@ln -sf $(BUILD)/compile_commands.json compile_commands.json

demo: deps-test build ## TPC-H scale 1 on 3 workers, all 22 queries, compared with DuckDB
	@$(PY) scripts/demo.py --scale $(SCALE)

unit: deps-test build ## unit tests
	@cmake --build $(BUILD) -j $(JOBS) --target tests-unit tests-sim
	@cd $(BUILD) && ctest --output-on-failure -L unit
sim: deps-test build ## the scheduler under seeded faults; SEEDS=N
	@cmake --build $(BUILD) -j $(JOBS) --target tests-sim
	@cd $(BUILD) && ctest --output-on-failure -L sim
sql cluster interop: deps-test build ## tests of that folder over real files and processes
	@$(PY) -m pytest -q tests/$@
check: deps-test lint build ## the quick part: < 3 minutes
	@scripts/test quick
test: deps-test ## installs, builds and runs every test; ends with "N passed, N failed"
	@scripts/test all

bench: deps-test build ## ratios side by side; docs/benchmarks.md says how to read them
	@$(PY) bench/run.py

format: ## clang-format over our sources
	@git ls-files '*.c' '*.h' | xargs clang-format -i
lint: deps-test ## formatting, layering, spelling of rules
	@scripts/lint

asan: deps-test ## unit and SQL tests under AddressSanitizer and UBSan
	@scripts/test asan
ubsan: asan ## the same build: both sanitizers run together
tsan: deps-test ## net, flight, shuffle and scheduler tests under ThreadSanitizer
	@scripts/test tsan
fuzz: deps-test ## every fuzzer for FUZZ_SECONDS (20) each
	@scripts/test fuzz
clean: ## everything but the fetched dependencies and data
	@find build -mindepth 1 -maxdepth 1 ! -name deps ! -name data -exec rm -rf {} + ; rm -rf build-*
