# SPDX-License-Identifier: BSD-3-Clause
# Every target sets up what it needs, and does nothing twice.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Prefers the pinned ninja, clang-tidy etc. to the system's.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
PY := .venv/bin/python
CONFIGURE = tools/check_tools.sh && \
  cmake -S . -G Ninja --log-level=ERROR -DPython_EXECUTABLE=$(CURDIR)/$(PY) \
  -DTIDEGAUGE_WERROR=ON -B
CPP_FILES = $$(git ls-files -co --exclude-standard '*.cpp' '*.h')

.PHONY: help build demo docs test test-long fuzz oracle matrix bench lint format asan asan-core tsan wheel sdist clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 12

# TORCH=2.14.1, TORCH=2.13.0+cpu, ...: another torch, with a package of its own in build/.
ifdef TORCH
build: build/.sqlite
	@tools/build_for_torch.sh $(TORCH)
else
build: .venv/.build build/.sqlite ## build the library, and the Python package into .venv (or for TORCH=2.14.1)
	@$(CONFIGURE) build/release >/dev/null
	@cmake --build build/release
	@cmake --install build/release --prefix python/tidegauge >/dev/null
endif

demo: build ## estimate whether Llama 3 8B fits on eight H100 (needs no GPU)
	@$(PY) -m tidegauge estimate examples/python/llama.py --fsdp 8 --mp bf16/fp32 \
	  --ac selective --device h100-80g
	@echo
	@echo 'Next, with .venv/bin in your PATH:'
	@echo '  tidegauge estimate examples/python/llama.py --fsdp 8 --device h100-80g --max batch'
	@echo '  tidegauge run examples/python/train.py'
	@echo '  tidegauge report train.tide --html train.html'

docs: build/.docs ## build the documents as a site, build/site/index.html; warnings are errors
	@build/envs/docs/bin/mkdocs build --quiet --strict

test: build .venv/.test build/.gtest build/.test_tools ## run the C++, Python and HTML report tests
	@$(CONFIGURE) build/release -DTIDEGAUGE_BUILD_TESTS=ON >/dev/null
	@cmake --build build/release --target tests
	@tools/run_tests.sh build/release

test-long: .venv/.wheel ## run also the long tests, the wheel, a C++ project that uses it, and the sanitizers
	@TIDEGAUGE_LONG=1 PYTEST_TIMEOUT=3600 $(MAKE) test
	@TIDEGAUGE_LONG=1 $(MAKE) asan tsan

fuzz: build .venv/.test ## run commands and libFuzzer on mutated files, SECONDS=60 for each kind; keep findings in build/fuzz
	@tools/build_fuzzers.sh
	@$(PY) tests/fuzz/fuzz.py --seconds $(or $(SECONDS),60)

oracle: build $(if $(TORCH),,.venv/.test) ## run tests on torch's own CUDA allocator (needs no GPU; or for TORCH=2.14.1)
	@tools/run_oracle.sh $(TORCH)

matrix: build/.sqlite ## build and test with each version of torch, write docs/torch-versions.md
	@tools/matrix.py $(MATRIX)

bench: build .venv/.test build/.benchmark ## run the benchmarks, write benchmarks/results.json
	@$(CONFIGURE) build/release -DTIDEGAUGE_BUILD_BENCHMARKS=ON >/dev/null
	@cmake --build build/release --target core_bench mem_tracker_bench record_steps
	@$(PY) benchmarks/run.py --core-bench build/release/core_bench \
	  --cpp-bench build/release/mem_tracker_bench --record-steps build/release/record_steps

lint: build .venv/.lint build/.gtest ## check format, types and likely bugs
	@$(CONFIGURE) build/release -DTIDEGAUGE_BUILD_TESTS=ON >/dev/null
	clang-format --dry-run -Werror $(CPP_FILES)
	ruff check .
	ruff format --check .
	mypy
	$(PY) tools/check_layers.py
	$(PY) tools/lock_requirements.py --check
	$(PY) -m mypy.stubtest tidegauge._core tidegauge._C \
	  --allowlist tools/stubtest.allow --ignore-unused-allowlist
	tools/tidy.sh build/release

format: .venv/.lint ## format all sources
	@clang-format -i $(CPP_FILES)
	@ruff check --quiet --fix --exit-zero .
	@ruff format --quiet .

asan: OPTIONS := -DTIDEGAUGE_SANITIZE=address,undefined -DTIDEGAUGE_WITH_PYTHON=ON
tsan: OPTIONS := -DTIDEGAUGE_SANITIZE=thread -DTIDEGAUGE_WITH_PYTHON=OFF
# Unity builds are quicker, but GCC warns about them. The tests of files from strangers and of threads.
asan-core: OPTIONS := -DTIDEGAUGE_SANITIZE=address,undefined -DTIDEGAUGE_WITH_TORCH=OFF \
  -DTIDEGAUGE_WITH_PYTHON=OFF -DTIDEGAUGE_WERROR=OFF -DCMAKE_UNITY_BUILD=ON \
  -DTIDEGAUGE_CORE_TESTS="tests/trace;tests/allocator"
asan: .venv/.test ## run C++ and Python tests under the address and undefined-behaviour sanitizers
asan-core: ## run C++ tests of traces and allocators under these sanitizers, without torch
tsan: ## run the C++ tests under the thread sanitizer
asan asan-core tsan: .venv/.build build/.gtest build/.sqlite
	@$(CONFIGURE) build/$@ -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 \
	  -DTIDEGAUGE_BUILD_TESTS=ON $(OPTIONS) >/dev/null
	@cmake --build build/$@ --target all tests
	@tools/run_sanitized.sh $@

wheel: .venv/.wheel build/.sqlite ## build a wheel into dist/ (or for TORCH=2.14.1; TORCH=none: without torch)
	@tools/check_tools.sh
ifneq ($(filter-out none,$(TORCH)),)
	@tools/setup_torch_env.sh $(TORCH)
	@tools/build_wheel.sh dist $(or $(TORCH_ENV),build/envs/torch-$(TORCH))/bin/python
else
	@tools/build_wheel.sh dist $(PY) $(TORCH)
endif

sdist: .venv/.build ## pack the sources into dist/
	@TIDEGAUGE_WITH_TORCH=OFF $(PY) -c "from scikit_build_core.build import build_sdist; build_sdist('dist')"

clean: ## remove all build products, keep .venv
	@rm -rf build python/tidegauge/include python/tidegauge/lib python/tidegauge/share \
	  python/tidegauge/*.so python/tidegauge/_built_for.py

# Stamp files: remade when the requirements change, or when an earlier stamp does.
.venv/.build: requirements/locked/build.txt
	@tools/check_tools.sh
	@tools/setup_venv.sh build
	@touch $@
.venv/.test: requirements/locked/test.txt .venv/.build
	@tools/setup_venv.sh test
	@touch $@
.venv/.lint: requirements/locked/lint.txt .venv/.test
	@tools/setup_venv.sh lint
	@touch $@
.venv/.wheel: requirements/locked/wheel.txt .venv/.build
	@tools/setup_venv.sh wheel
	@touch $@
build/.docs: requirements/docs.txt
	@python3 -m venv build/envs/docs
	@build/envs/docs/bin/pip install --quiet --disable-pip-version-check -r requirements/docs.txt
	@touch $@
build/.sqlite:
	@tools/setup_debian.sh sqlite3.h libsqlite3-dev
	@mkdir -p build && touch $@
build/.gtest:
	@tools/setup_debian.sh gtest/gtest.h libgtest-dev
	@mkdir -p build && touch $@
build/.test_tools:
	@tools/setup_test_tools.sh
	@mkdir -p build && touch $@
build/.benchmark:
	@tools/setup_debian.sh benchmark/benchmark.h libbenchmark-dev
	@mkdir -p build && touch $@
