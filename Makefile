# What a person and CI run, with the same commands. `make demo` or `make test` is all that a
# fresh machine needs; each installs what it lacks.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=

.PHONY: demo test faults features check bench install temporal clean

# A turn that loses its worker in the middle of a tool call; no API key is needed. It obtains
# the Temporal server itself.
demo: install
	@$(BIN)/python examples/demo.py

test: install temporal
	@command -v bwrap >/dev/null || echo "Tests of run_command are skipped: install bubblewrap (apt-get install bubblewrap)." >&2
	@command -v redis-server >/dev/null || echo "Tests of the governor on Redis are skipped: install redis-server (apt-get install redis-server)." >&2
	@command -v npm >/dev/null || echo "Tests of MCP's reference servers are skipped: install Node and npm (apt-get install npm)." >&2
	$(BIN)/pytest -n 2 $(PYTEST_ARGS)

# The longer proofs too: every kill, and a thousand races.
faults: install temporal
	$(BIN)/pytest -n 2 -m "long or not long" tests/faults tests/turn $(PYTEST_ARGS)

# The list of features, and which of them their tests show.
features: install temporal
	$(BIN)/python tests/rows.py -n 2 tests $(PYTEST_ARGS)

check: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install temporal
	$(BIN)/python tests/bench

install: $(STAMP)

$(STAMP): pyproject.toml scripts/install
	@sh scripts/install $(VENV)
	@touch $@

# Minutes at the first time where the server must be built, nothing afterwards.
temporal: install
	@$(BIN)/python -m everturn_workers.fetch

clean:
	rm -rf $(VENV)
