# Two commands do everything: `make up` runs the product, `make test` proves it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 3
# The registry's certificate may be known to this machine's own store only.
export UV_SYSTEM_CERTS ?= 1
SYSTEM_CERTS = $$($(BIN)/python -c "import ssl; print(ssl.get_default_verify_paths().cafile)")
# For `make torture`: the seeds of its self-tests, five minutes each, and of its fuzzers, which try new
# examples each time unless FUZZ_SEED is that of an earlier run.
SEEDS ?= 1 2 3 4
EXAMPLES ?= 300
FUZZ_SEED := $(or $(FUZZ_SEED),$(shell date +%s))

# Where attackers are played: a hostile model, page, operator, repository and machine.
ATTACKS := tests/e2e/attacks tests/e2e/trust tests/integration/api/attacks tests/integration/api/trust \
	tests/integration/api/test_strangers_fuzz.py tests/integration/fleet/test_link.py \
	tests/integration/terminal/test_cage.py tests/integration/terminal/test_cage_attacks.py \
	tests/integration/terminal/test_cage_folders.py tests/integration/terminal/test_cage_landlock.py \
	tests/integration/terminal/test_cage_gates.py tests/integration/terminal/test_cage_limits.py \
	tests/integration/terminal/test_cage_network.py \
	tests/integration/terminal/test_cage_system_calls.py tests/integration/terminal/test_cage_users.py \
	tests/integration/terminal/test_strangers.py tests/integration/agent/test_cage_parity.py \
	tests/integration/agent/test_search_limits.py tests/integration/activities/test_swapped_trees.py \
	tests/integration/worker/test_deadly_calls.py tests/unit/agent/test_swapped_files.py \
	tests/unit/folders tests/unit/domain/test_trust.py tests/unit/storage/test_bounded_json.py

.PHONY: up token install system-packages test attack check types style imports audit bench torture mutants mutate fmt lock docs clean

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

# Every attack of `make test` by itself; `make torture` lets the attackers try twenty times as often.
attack: install system-packages
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not slow" -q $(ATTACKS)

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
	HOLDFAST_ATTACK_ROUNDS=20 $(BIN)/python -m pytest -q --timeout 3600 $(ATTACKS)
	for seed in $(SEEDS); do $(BIN)/holdfast selftest --minutes 5 --seed $$seed || exit 1; done
	for seed in $(SEEDS); do $(BIN)/holdfast selftest --fleet --minutes 5 --seed $$seed || exit 1; done

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
