# The commands of the README and of CI. They call CMake and Ninja; CMakePresets.json has the presets.
# `make test SKIP=ops` leaves out the tests with the label ops. `make test OMIT='^test_plan'` leaves out the tests whose names match.
# `make run` and `make test` first install missing Debian packages (tools/setup.sh). All other targets only report missing packages.
# CMAKE_ARGS='-D NAME=VALUE' sets options of CMake, also in an existing build.

.PHONY: run test build build-all configure cuda vulkan install uninstall test-long test-tiers test-everywhere windows web dist fuzz soak coverage prove mutants conformance client corpus bench bench-tiers check format docs clean setup setup-mpi help

PRESET  ?= release
PREFIX  ?= /usr/local
DIR      = $(if $(filter release,$(PRESET)),build,build/$(PRESET))

help:
	@echo "make run          build, then generate a text with the small model that comes with Berth"
	@echo "make test         build and run the tests"
	@echo "make build        build the libraries (build/lib) and the programs (build/bin)"
	@echo "make cuda         also build the library of the CUDA backend (requires nvcc)"
	@echo "make vulkan       also build the library of the Vulkan backend (requires glslc and Vulkan's headers)"
	@echo "make setup        install the missing Debian packages for building and testing, as root or with sudo"
	@echo "make setup-mpi    install MPI, which runs models on several machines (docs/user/cluster.md)"
	@echo "make install      install into PREFIX ($(PREFIX)); DESTDIR is respected"
	@echo "make uninstall    remove the files that make install wrote to PREFIX"
	@echo "make conformance  compare Berth with ggml's own libraries (requires npm)"
	@echo "make client       run llama.cpp's own binaries on Berth (requires npm)"
	@echo "make test-long    run the long tests"
	@echo "make test-tiers   test kernels and ops with every level of instruction sets; qemu runs those that this machine lacks"
	@echo "make windows      build for Windows with mingw-w64 and run the tests under wine (docs/user/windows.md)"
	@echo "make web          write build/web/index.html, a page that plans files in a browser (installs emscripten; docs/user/browser.md)"
	@echo "make test-everywhere  build with every supported compiler, for Windows and browsers, and Debian's packages (requires root; takes hours)"
	@echo "make dist         write build/berth-VERSION.tar.gz, the sources of the current commit"
	@echo "make fuzz         run every fuzz target for MINUTES=1 (requires clang)"
	@echo "make soak         repeat random work for MINUTES=60; memory must not grow"
	@echo "make coverage     measure the lines and branches that the tests reach"
	@echo "make prove        prove the contracts of checked arithmetic, the plan check and other files (installs Frama-C)"
	@echo "make mutants      change the code in N=50 places per module and count the changes that the tests notice"
	@echo "make corpus       plan 501 captured graphs and compare their memory with ggml's (figures of the README)"
	@echo "make bench        run the benchmarks, which compare Berth with ggml"
	@echo "make bench-tiers  compare the kernels of every instruction set with ggml's; write docs/data and docs/user/speed.md"
	@echo "make check        check layers, exported symbols, formatting, comments of public functions, messages, file names"
	@echo "make format       format the sources"
	@echo "make docs         write the reference of the public headers to build/docs, as Markdown"
	@echo "PRESET=debug|asan|tsan|coverage|clang|static selects another build"

run:
	@BERTH_SETUP=build tools/setup.sh
	@$(MAKE) --no-print-directory build
	@$(DIR)/bin/berth run --echo < /dev/null

setup:
	@tools/setup.sh

# If the build is configured already, it is configured again, so that CMake finds MPI.
setup-mpi:
	@BERTH_SETUP=mpi tools/setup.sh
	@[ ! -e $(DIR)/build.ninja ] || cmake $(DIR) > $(DIR)/configure.log 2>&1 || { cat $(DIR)/configure.log; exit 1; }

configure:
	@tools/configure.sh $(PRESET) $(DIR) $(CMAKE_ARGS)

$(DIR)/build.ninja: configure ;

# Builds the libraries and the program `berth`. Other targets build tests and benchmarks when they need them.
build:
	@BERTH_SETUP=build tools/setup.sh --check
	@$(MAKE) --no-print-directory configure
	@cmake --build $(DIR) --target ggml ggml-cpu ggml-base berth berth-plugins

# A build that was configured without cmocka or zlib has no tests, so it is configured again.
build-all:
	@tools/setup.sh --check
	@$(MAKE) --no-print-directory configure
	@[ -e $(DIR)/CTestTestfile.cmake ] || cmake $(DIR) > $(DIR)/configure.log 2>&1 || { cat $(DIR)/configure.log; exit 1; }
	@cmake --build $(DIR)

cuda: build
	@cmake --build $(DIR) --target ggml-cuda

vulkan: build
	@tools/configure.sh $(PRESET) $(DIR) -D BERTH_VULKAN=ON $(CMAKE_ARGS)
	@cmake --build $(DIR) --target ggml-vulkan

test: setup
	@$(MAKE) --no-print-directory build-all
	@ctest --test-dir $(DIR) -j2 --output-on-failure --label-exclude 'long|conformance$(if $(SKIP),|$(SKIP))' $(if $(OMIT),--exclude-regex '$(OMIT)')
	@if [ "$(BERTH_STRICT)" = 1 ]; then tools/check-skips.sh $(DIR); fi

test-long: build-all
	@ctest --test-dir $(DIR) --output-on-failure --label-regex long

test-tiers: build-all
	@tools/test-tiers.sh $(DIR)

windows:
	@DIR=$(DIR) tools/windows.sh

web:
	@tools/web.sh

# What .ci/run does not cover, because it takes too long or needs other releases of Debian. docs/user/install.md has the last results.
test-everywhere: build
	@tools/compilers.sh
	@tools/debian.sh
	@$(MAKE) --no-print-directory windows
	@DIR=$(DIR) tools/web.sh build test speed

dist:
	@tools/dist.sh

fuzz: setup
	@tools/fuzz.sh $(or $(MINUTES),1)

soak: build-all
	@BERTH_SOAK_MINUTES=$(or $(MINUTES),60) $(DIR)/tests/long_soak

# Runs the tests with programs that count the lines and branches that they reach. The result is printed even if a test failed.
coverage:
	@find build/coverage -name '*.gcda' -delete 2> /dev/null || true
	@$(MAKE) --no-print-directory test PRESET=coverage SKIP=formats; failed=$$?; tools/coverage.py build/coverage && exit $$failed

# Proves the contracts in the sources: docs/dev/verification.md.
prove:
	@tools/prove.sh

# Modules: MODULES='core alloc sched gguf record backend plan/solve base'. The mutants of a SEED are the same on every machine.
mutants: build-all
	@tools/mutants.py $(DIR) --n $(or $(N),50) --seed $(or $(SEED),1) $(MODULES)

conformance: build-all
	@tools/conformance.sh $(DIR)

client: build
	@cmake --build $(DIR) --target client-probe client-model
	@tests/client/client.sh $(DIR)

# Computes the memory figures of the README from the captured graphs that come with Berth.
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

# The library folder depends on the prefix (lib, or lib/aarch64-linux-gnu if the prefix is /usr), so CMake gets the prefix.
install:
	@BERTH_SETUP=build tools/setup.sh --check
	@tools/configure.sh $(PRESET) $(DIR) -D CMAKE_INSTALL_PREFIX="$(PREFIX)" $(CMAKE_ARGS)
	@$(MAKE) --no-print-directory build
	@cmake --install $(DIR)

uninstall:
	@tools/uninstall.sh $(DIR) "$(PREFIX)"

clean:
	@rm -rf build
