# Two commands do everything: `make up` runs the product, `make test` proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
# The registry's certificate may be known to this machine's own store only.
export UV_SYSTEM_CERTS ?= 1
SYSTEM_CERTS = $$($(BIN)/python -c "import ssl; print(ssl.get_default_verify_paths().cafile)")
# For `make torture`: the seeds of its self-tests, five minutes each, and of its fuzzers, which try new
# examples each time unless FUZZ_SEED is that of an earlier run.
SEEDS ?= 1 2 3 4
EXAMPLES ?= 300
FUZZ_SEED := $(or $(FUZZ_SEED),$(shell date +%s))

.PHONY: up token install system-packages test check types style imports audit bench torture mutants mutate fmt lock docs clean

up: install
	$(BIN)/holdfast up

token: install
	@$(BIN)/holdfast token

install: $(VENV)/.installed

INSTALL_UV = $(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/.installed: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -x $(BIN)/uv || $(INSTALL_UV) || $(INSTALL_UV) --cert "$(SYSTEM_CERTS)"
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	# Compile what the product imports, once: it halves every start (the variable may forbid it here).
	-PYTHONDONTWRITEBYTECODE= $(BIN)/python -c "import api.main, worker.main, holdfast.cli.main, holdfast.client, holdfast.terminal.main, alembic.command"
	touch $@

system-packages:
	sh scripts/system-packages.sh

test: install system-packages
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not slow and not bench" -q tests

# Side by side: the types take longer than all the rest.
check: install
	@$(MAKE) --no-print-directory -j2 --output-sync=target types style imports audit

types: install
	$(BIN)/mypy --no-error-summary .

style: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

imports: install
	$(BIN)/lint-imports --no-cache

audit: install
	$(BIN)/python -m scripts.audit

fmt: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install system-packages
	$(BIN)/python -m tests.bench

torture: install
	sh scripts/system-packages.sh faketime
	$(BIN)/python -m pytest -m slow -q --timeout 900 tests
	@echo "fuzzing: the same again with FUZZ_SEED=$(FUZZ_SEED)"
	HOLDFAST_FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -q --timeout 3600 -m "not slow and not bench" \
		--hypothesis-seed=$(FUZZ_SEED) -k "fuzz or strangers or hypothesis" tests
	for seed in $(SEEDS); do $(BIN)/holdfast selftest --minutes 5 --seed $$seed || exit 1; done

# Removes each proven behaviour once and sees its tests fail; WORDS: areas, ids or files, CHEAPEST=1: one for each id.
mutants: install system-packages
	$(BIN)/python -m scripts.mutants --jobs $(JOBS) $(if $(CHEAPEST),--cheapest) $(WORDS)

# Small edits of whole packages; TARGETS: files or folders, MUTATE: options of `scripts/mutate.py`.
mutate: install
	$(BIN)/python -m scripts.mutate $(MUTATE) $(or $(TARGETS),holdfast/domain holdfast/memory holdfast/storage/sessions holdfast/storage/moves)

docs: install
	$(BIN)/python -m scripts.lifecycle_page
	$(BIN)/python -m scripts.coverage_page
	$(BIN)/python -m scripts.cli_page
	$(BIN)/python -m scripts.code_map

lock: install
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal \
		--python-version 3.11 requirements-dev.in -o requirements.lock

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache
