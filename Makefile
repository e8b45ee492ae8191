# What a developer does by hand; the build itself is CMake's. `make help` lists the targets.

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
# Installs missing Debian packages; BOOTSTRAP=: leaves that out.
BOOTSTRAP ?= scripts/bootstrap

# Expanded when a recipe runs: bootstrap may just have installed ninja.
ninja = $(if $(shell command -v ninja),CMAKE_GENERATOR=$${CMAKE_GENERATOR:-Ninja})
configure = $(ninja) cmake --preset $(1) > /dev/null
compile = cmake --build $(1) --parallel $(JOBS)
run_tests = ctest --test-dir $(1) --output-on-failure --parallel $(JOBS)
# For those who do not test: a new build folder does without the packages of the tests.
without_tests = $(if $(wildcard build/CMakeCache.txt),,-DDEEPGEMM_BUILD_TESTS=OFF)

.NOTPARALLEL:
.PHONY: build demo test check bench cpu-report fuzz asan tsan install clean help

build: bootstrap-test ## Build libraries, program and tests into build/ (the default)
	@$(call configure,release -DDEEPGEMM_BUILD_TESTS=ON)
	@$(call compile,build)

demo: bootstrap-build ## Build the program only and show it at work on a layer of a real model
	@$(call configure,release $(without_tests))
	@$(call compile,build) --target deepgemm_cli
	@scripts/demo

test: asan build ## Run the unit tests under sanitizers, then all tests of the release build
	@$(call run_tests,build)

check: bootstrap-check ## Check format, names, layers, sizes, words and documented paths
	@$(call configure,release -DDEEPGEMM_BUILD_TESTS=ON)
	@scripts/check

bench: bootstrap-bench ## Run the benchmarks of host code
	@$(call configure,release $(without_tests) -DDEEPGEMM_BUILD_BENCH=ON)
	@$(call compile,build) --target deepgemm_bench
	@build/bench/deepgemm_bench

cpu-report: bootstrap-bench ## Compare the CPU backend with oneDNN and OpenBLAS (half an hour)
	@$(call configure,release $(without_tests) -DDEEPGEMM_BUILD_BENCH=ON)
	@$(call compile,build) --target deepgemm_cpu_report
	@scripts/cpu_report --no-build

fuzz: bootstrap-fuzz ## Run each fuzzer for FUZZ_SECONDS
	@JOBS=$(JOBS) scripts/fuzz $(FUZZ_SECONDS)

asan tsan: bootstrap-test ## Run the unit tests under sanitizers, in build-asan/ or build-tsan/
	@$(call configure,$@)
	@$(call compile,build-$@)
	@$(call run_tests,build-$@) --label-regex cpu

install: bootstrap-build ## Install into PREFIX (default /usr/local); DESTDIR is heeded
	@$(call configure,release $(without_tests))
	@$(call compile,build)
	@cmake --install build --prefix $(PREFIX)

clean: ## Remove all build folders
	rm -rf build build-dev build-asan build-tsan build-fuzz

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z -]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

bootstrap-%:
	@$(BOOTSTRAP) $*
