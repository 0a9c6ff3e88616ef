# Every line is a command that one can type. `make demo` and `make test` need nothing but a clone,
# Python 3.11 or newer, and root or sudo for packages that are missing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help demo setup test nested conformance check bench docs clean

help:
	@echo "make demo    install what is missing, then show a sandbox at work"
	@echo "make setup   install what is missing, fetch gVisor, build the base template"
	@echo "make test    install what is missing, then run the whole test suite"
	@echo "make nested  run the tests of QEMU with KVM in a machine that has it, also where this one has not"
	@echo "make conformance  run test suites that others wrote; ARGS=NAME for one"
	@echo "make check   formatter, linters, types, import contracts, generated code, Go"
	@echo "make bench   measure against raw runsc; prints JSON"
	@echo "make docs    write the SDK reference and the man page from the sources"
	@echo "make clean   remove the virtual environment and what was built"

demo: setup
	$(BIN)/python examples/quickstart.py
	$(BIN)/python examples/test_a_package.py

setup: $(VENV)/.runtime
	$(BIN)/tupper setup

test: $(VENV)/.dev
	$(BIN)/python tools/build_agent.py
	$(BIN)/python -m pytest $(ARGS)

nested: $(VENV)/.dev
	$(BIN)/python tools/build_agent.py
	$(BIN)/python -m pytest -s tests/nested --whole $(ARGS)

conformance: $(VENV)/.dev
	$(BIN)/python tools/build_agent.py
	$(BIN)/python tools/conformance.py $(ARGS)

check: $(VENV)/.dev
	$(BIN)/python tools/check.py

bench: setup $(VENV)/.dev
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.runtime
	$(BIN)/python tools/make_reference.py
	$(BIN)/python tools/make_man.py

clean:
	rm -rf $(VENV) build dist src/tupper/guest/bin .mypy_cache .ruff_cache .pytest_cache

# The virtual environment, with tupper installed so that edits show at once.
$(VENV)/.runtime: pyproject.toml constraints.txt tools/packages.txt tools/build_agent.py $(shell find agent -name '*.go' -not -name '*_test.go' 2>/dev/null)
	PYTHON=$(PYTHON) tools/host_packages.sh build runtime
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --constraint constraints.txt --upgrade pip
	@echo "tupper: installing into $(VENV), compiling the guest agent"
	$(PIP) install --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.runtime
	tools/host_packages.sh test
	$(PIP) install --constraint constraints.txt --group dev
	touch $@
