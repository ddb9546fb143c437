SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
TORCH_VERSION ?= 2.13.0
PYTEST_ARGS ?=
BENCH_ARGS ?=

VENV := .venv
VENV_PYTHON := $(VENV)/bin/python
STAMPS := $(VENV)/.stamps
CHECKED := $(wildcard src benchmarks examples tests)

# Other interpreters are tried only when the user named none.
PYTHONS := $(PYTHON) $(if $(filter file,$(origin PYTHON)),python3.14 python3.13 python3.12 python3.11)

# A version manager's, too, which are not all on the path.
EACH_PYTHON ?= $(foreach version,3.11 3.12 3.13 3.14,$(firstword \
	$(wildcard $(HOME)/.pyenv/versions/$(version).*/bin/python) python$(version)))

# A machine with a C compiler needs no other to run the demonstration.
HOST_CC := $(shell command -v cc || command -v gcc || command -v clang)
DEMO_EXTRAS := demo $(if $(HOST_CC),,cc)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12 chooses the interpreter, PYTEST_ARGS and BENCH_ARGS add arguments."

.PHONY: demo
demo: $(DEMO_EXTRAS:%=$(STAMPS)/extra-%) ## Compile and run a small model, compared with ONNX Runtime
	$(VENV_PYTHON) examples/digits/demo.py

# Threads of NumPy's products would spin beside the other worker: a fifth of the time of tests that multiply.
test test-pythons test-long test-cuda test-torch test-classical test-classical-long: export OPENBLAS_NUM_THREADS := 1

# Workers and processes of tests need not compile all modules each, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test
test: $(STAMPS)/extra-test $(STAMPS)/extra-cc $(STAMPS)/extra-cuda ## Run the tests that need neither a GPU, PyTorch, scikit-learn nor patience
	$(VENV_PYTHON) -m pytest -n 2 --timeout 600 -m "not long and not torch and not classical and not gpu" $(PYTEST_ARGS)

# Other interpreters have environments of their own, in build.
.PHONY: test-pythons
test-pythons: ## Run the same tests on each of Python 3.11 to 3.14 that is installed
	@for python in $(EACH_PYTHON); do \
		name=$$("$$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue; \
		"$$python" -m venv "build/$$name"; \
		"build/$$name/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[test,cc,cuda]'; \
		echo "$$name"; \
		"build/$$name/bin/python" -m pytest -n 2 --timeout 600 \
			-m "not long and not torch and not classical and not gpu" $(PYTEST_ARGS); \
	done

# Tracing makes the tests take two to three times as long.
.PHONY: coverage
coverage: override PYTEST_ARGS += --cov
coverage: test ## Run the same tests and count the lines that they reach

.PHONY: test-long
test-long: $(STAMPS)/extra-test $(STAMPS)/extra-cc ## Run the tests marked long that need neither a GPU, PyTorch nor scikit-learn
	$(VENV_PYTHON) -m pytest -m "long and not torch and not classical and not gpu" $(PYTEST_ARGS)

.PHONY: test-cuda
test-cuda: $(STAMPS)/extra-test $(STAMPS)/extra-cuda ## Compile skeletons and the six networks for GPUs; needs no GPU
	$(VENV_PYTHON) -m pytest -n 2 --timeout 600 -m "not gpu" tests/devices/cuda/test_compile.py \
		tests/devices/cuda/test_skeletons.py::test_compiles_alone $(PYTEST_ARGS)

# pytest exits with 5 when no test is selected, which is no failure here.
.PHONY: test-torch
test-torch: $(STAMPS)/torch-$(TORCH_VERSION) ## Install PyTorch $(TORCH_VERSION) and run the tests marked torch
	$(VENV_PYTHON) -m pytest -n 2 --timeout 600 -m "torch and not gpu" $(PYTEST_ARGS) || \
		{ [[ $$? == 5 ]] && echo "No tests are marked torch yet."; }

.PHONY: test-classical
test-classical: $(STAMPS)/extra-test $(STAMPS)/extra-cc $(STAMPS)/extra-classical ## Run the tests marked classical
	$(VENV_PYTHON) -m pytest -n 2 --timeout 600 -m "classical and not long and not gpu" $(PYTEST_ARGS)

.PHONY: test-classical-long
test-classical-long: $(STAMPS)/extra-test $(STAMPS)/extra-cc $(STAMPS)/extra-classical ## Run the tests marked classical and long
	$(VENV_PYTHON) -m pytest -n 2 -m "classical and long and not gpu" $(PYTEST_ARGS)

.PHONY: check
check: $(STAMPS)/extra-dev $(STAMPS)/extra-test ## Check formatting, style, types and architecture
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy --strict $(CHECKED)
	$(VENV)/bin/lint-imports --no-logo

.PHONY: docs
docs: $(STAMPS)/extra-docs ## Build the site of the documents in build/site and check its links
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

.PHONY: bench
bench: $(STAMPS)/extra-peers $(STAMPS)/extra-cc ## Measure Rammer beside other runtimes
	$(VENV_PYTHON) -m benchmarks $(BENCH_ARGS)

.PHONY: package
package: $(STAMPS)/extra-package ## Build the package and try it in a fresh environment
	rm -rf build/fresh dist
	$(VENV_PYTHON) -m build
	$(VENV_PYTHON) -m venv build/fresh
	build/fresh/bin/python -m pip install --quiet --disable-pip-version-check "$$(ls dist/*.whl)$(if $(HOST_CC),,[cc])"
	cd build && fresh/bin/rammer --version && fresh/bin/rammer doctor
	cd build && fresh/bin/rammer run ../examples/digits/digits.onnx --random

.PHONY: venv
venv: $(STAMPS)/extra-dev $(STAMPS)/extra-test $(STAMPS)/extra-cc $(STAMPS)/extra-cuda ## Prepare .venv for development

.PHONY: clean
clean: ## Remove what the other targets made, but for .venv
	rm -rf build dist out htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache \
		.pytest_cache .ruff_cache
	find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +

# --- The environment. Each stamp is newer than pyproject.toml when its packages are installed. ------------

$(VENV_PYTHON):
	@for candidate in $(PYTHONS); do \
		if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "Creating $(VENV) with $$("$$candidate" --version) ($$(command -v "$$candidate"))"; \
			exec "$$candidate" -m venv $(VENV); \
		fi; \
	done; \
	echo "Rammer needs Python 3.11 or newer; found none among: $(strip $(PYTHONS))." >&2; \
	echo "Install one, or name one: make PYTHON=/path/to/python3.11 ..." >&2; \
	exit 1

$(STAMPS)/extra-%: pyproject.toml | $(VENV_PYTHON)
	@echo "Installing rammer-compiler[$*] into $(VENV)"
	@$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@mkdir -p $(@D) && touch $@

# PyTorch's database of operators, which tests compare with, needs expecttest.
$(STAMPS)/torch-%: $(STAMPS)/extra-test $(STAMPS)/extra-cc
	@echo "Installing PyTorch $* into $(VENV)"
	@$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check torch==$* expecttest
	@mkdir -p $(@D) && rm -f $(STAMPS)/torch-* && touch $@
