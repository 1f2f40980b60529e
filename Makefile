# Berth: the commands of the README and of CI. CMake and Ninja do the work underneath; presets are in CMakePresets.json.
# SKIP='ops' leaves tests of a label out of `make test`, OMIT='^test_plan' those of such names.
# `make run` and `make test` first install what is missing from Debian's packages (tools/setup.sh); all others say what is missing.
# CMAKE_ARGS='-D NAME=VALUE' sets options of CMake, also of a build that is there.

.PHONY: run test build build-all configure cuda install uninstall test-long test-tiers fuzz soak coverage conformance client corpus bench bench-tiers check format docs clean setup setup-mpi help

PRESET  ?= release
PREFIX  ?= /usr/local
DIR      = $(if $(filter release,$(PRESET)),build,build/$(PRESET))

help:
	@echo "make run          build, then let the shipped model tell a tale"
	@echo "make test         build and run the tests"
	@echo "make build        libraries into build/lib, programs into build/bin"
	@echo "make cuda         the CUDA backend's library too (needs nvcc)"
	@echo "make setup        install what is missing to build and test: Debian's packages, as root or with sudo"
	@echo "make setup-mpi    install MPI, for models over several machines (docs/user/cluster.md)"
	@echo "make install      install below PREFIX ($(PREFIX)), DESTDIR is respected"
	@echo "make uninstall    remove what make install put below PREFIX"
	@echo "make conformance  compare with the reference libraries (needs npm)"
	@echo "make client       run llama.cpp's own binaries on Berth (needs npm)"
	@echo "make test-long    the long tests"
	@echo "make test-tiers   kernels and ops on every tier, under qemu what this machine lacks"
	@echo "make fuzz         every fuzz target for MINUTES=1 (needs clang)"
	@echo "make soak         everything over and over for MINUTES=60, memory flat"
	@echo "make coverage     lines and branches that the tests reach"
	@echo "make corpus       plan 501 captured graphs beside what ggml took: the README's figures of memory"
	@echo "make bench        benchmarks, side by side with the reference"
	@echo "make bench-tiers  measure every tier of kernels against the reference; write docs/data and docs/user/speed.md"
	@echo "make check        layers, exported symbols, formatting, comments of the public functions, messages, file names"
	@echo "make format       format the sources"
	@echo "make docs         write the reference of the public headers to build/docs, as Markdown"
	@echo "PRESET=debug|asan|tsan|coverage|clang|static chooses another build"

run:
	@BERTH_SETUP=build tools/setup.sh
	@$(MAKE) --no-print-directory build
	@$(DIR)/bin/berth run --echo < /dev/null

setup:
	@tools/setup.sh

# A build that is configured already looks for it again.
setup-mpi:
	@BERTH_SETUP=mpi tools/setup.sh
	@[ ! -e $(DIR)/build.ninja ] || cmake $(DIR) > $(DIR)/configure.log 2>&1 || { cat $(DIR)/configure.log; exit 1; }

configure:
	@tools/configure.sh $(PRESET) $(DIR) $(CMAKE_ARGS)

$(DIR)/build.ninja: configure ;

# Libraries and the program; tests and benchmarks are built by what needs them.
build:
	@BERTH_SETUP=build tools/setup.sh --check
	@$(MAKE) --no-print-directory configure
	@cmake --build $(DIR) --target ggml ggml-cpu ggml-base berth berth-plugins

# A build that was configured before there was cmocka or zlib has no tests: it is configured again.
build-all:
	@tools/setup.sh --check
	@$(MAKE) --no-print-directory configure
	@[ -e $(DIR)/CTestTestfile.cmake ] || cmake $(DIR) > $(DIR)/configure.log 2>&1 || { cat $(DIR)/configure.log; exit 1; }
	@cmake --build $(DIR)

cuda: build
	@cmake --build $(DIR) --target ggml-cuda

test: setup
	@$(MAKE) --no-print-directory build-all
	@ctest --test-dir $(DIR) -j2 --output-on-failure --label-exclude 'long|conformance$(if $(SKIP),|$(SKIP))' $(if $(OMIT),--exclude-regex '$(OMIT)')
	@if [ "$(BERTH_STRICT)" = 1 ]; then tools/check-skips.sh $(DIR); fi

test-long: build-all
	@ctest --test-dir $(DIR) --output-on-failure --label-regex long

test-tiers: build-all
	@tools/test-tiers.sh $(DIR)

fuzz: setup
	@tools/fuzz.sh $(or $(MINUTES),1)

soak: build-all
	@BERTH_SOAK_MINUTES=$(or $(MINUTES),60) $(DIR)/tests/long_soak

# Tests whose programs are built to count where they have been; what they reached is told where one failed, too.
coverage:
	@find build/coverage -name '*.gcda' -delete 2> /dev/null || true
	@$(MAKE) --no-print-directory test PRESET=coverage SKIP=formats; failed=$$?; tools/coverage.py build/coverage && exit $$failed

conformance: build-all
	@tools/conformance.sh $(DIR)

client: build
	@cmake --build $(DIR) --target client-probe client-model
	@tests/client/client.sh $(DIR)

# The figures of memory in the README, from the graphs that come with it.
corpus: build-all
	@tools/graphs.sh build/data
	@BERTH_DATA=build/data $(DIR)/tests/test_corpus

bench: build-all
	@tools/bench.sh $(DIR)

bench-tiers: build-all
	@tools/bench-tiers.sh $(DIR) $(PART)

check: build-all
	@tools/check-layers.sh $(DIR)
	@tools/check-cycles.py $(DIR)
	@tools/check-symbols.sh $(DIR)
	@tools/check-format.sh
	@tools/make-reference.py --check
	@tools/list-messages.py --check
	@tools/check-references.py
	@tools/check-tidy.sh $(DIR)

format:
	@tools/check-format.sh --fix

docs:
	@tools/make-reference.py

# Where libraries go depends on the prefix (lib, or lib/aarch64-linux-gnu below /usr), so CMake is given it.
install:
	@BERTH_SETUP=build tools/setup.sh --check
	@tools/configure.sh $(PRESET) $(DIR) -D CMAKE_INSTALL_PREFIX="$(PREFIX)" $(CMAKE_ARGS)
	@$(MAKE) --no-print-directory build
	@cmake --install $(DIR)

uninstall:
	@tools/uninstall.sh $(DIR) "$(PREFIX)"

clean:
	@rm -rf build
