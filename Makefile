# SPDX-License-Identifier: BSD-2-Clause
# The front door. CMake builds; this file names the commands.

BUILD ?= build
PREFIX ?= /usr/local
# bpftool and ethtool live in /usr/sbin, which is not on every user's PATH.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin

.NOTPARALLEL:
.PHONY: all deps build demo test test-full simulation-long chaos fuzz mutants vm-test vm-debug bench packages packages-test \
	install uninstall clean format format-check help

all: build ## build everything (the default)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf '  make %-16s %s\n' "$$name" "$$text"; done

deps: ## install the Debian packages that are missing
	@tools/deps

build: $(BUILD)/build.ninja
	@cmake --build $(BUILD)

# Ninja runs CMake again when a CMakeLists.txt changes.
$(BUILD)/build.ninja:
	@cmake -S . -B $(BUILD) -G Ninja

demo: deps build ## train a network on four workers through the XDP switch
	@tools/demo/run $(BUILD)

test: deps build ## run all tests (about 25 minutes on 2 cores)
	@tests/run --build $(BUILD) --asan $(BUILD)-asan

test-full: deps build packages ## the full matrices of every tier, and the Debian packages (over an hour; a mirror)
	@tests/run --build $(BUILD) --asan $(BUILD)-asan --full

simulation-long: deps build ## only the simulated schedules, with millions of seeds
	@cmake --build $(BUILD) --target simulation-long

chaos: deps build ## an hour of random jobs while workers, agents, servers, links and programs fail
	@tests/chaos/run --seconds 3600 --seed $${SEED:-$$(date +%s)} --build $(BUILD) --report $(BUILD)/chaos.json

FUZZ_SECONDS ?= 3600
fuzz: deps ## libFuzzer for an hour (FUZZ_SECONDS) on each parser and state machine that takes outside bytes
	@cmake -S . -B $(BUILD)-fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DINAGG_FUZZ=ON
	@cmake --build $(BUILD)-fuzz --target fuzzers
	@tests/fuzz/run --build $(BUILD)-fuzz --seconds $(FUZZ_SECONDS)

mutants: deps build ## break the rules of the core one by one: the tests must notice each
	@cmake --build $(BUILD) --target simulate-mutants unit-tests-mutants
	@tests/mutants/run --build $(BUILD)

vm-test: deps build ## the full matrix on Debian's 6.1 and 6.12 kernels in QEMU (hours without KVM)
	@tests/run --build $(BUILD) --full vm

vm-debug: deps build ## AF_INAGG for an hour on a kernel with KASAN and lockdep, which this builds first
	@tests/vm/debug-kernel $(BUILD)/vm/debug && tests/vm/debug-test $(BUILD)/vm/debug $(BUILD)/bin 3600

bench: deps build ## measure beside Open MPI and Gloo; writes $(BUILD)/bench/results.json, and compares it with the last recorded
	@tools/bench/run $(BUILD); status=$$?; tools/bench/compare $(BUILD) || status=1; exit $$status

packages: deps ## Debian packages of what is here, into $(BUILD)/packages
	@tools/packages $(BUILD)

packages-test: packages ## install, use and purge them in a clean Debian 12 (a chroot; needs root and a mirror)
	@tests/packages/run $(BUILD)

# The dynamic linker looks for libraries anew.
forget_libraries = [ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ldconfig

install: ## install under PREFIX (default /usr/local); DESTDIR is honoured
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	@cmake --build $(BUILD)
	@cmake --install $(BUILD)
	@$(forget_libraries)

uninstall: ## remove what `make install` installed from this build
	@tools/uninstall "$(BUILD)" "$(DESTDIR)"
	@$(forget_libraries)

clean: ## remove the build directories
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-fuzz

format: deps ## format all C++
	@tests/format/check --fix
format-check: deps ## say which C++ is not formatted, as `make test` does; changes nothing
	@tests/format/check
