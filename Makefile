# What a person and CI run, with the same commands. `make demo` or `make test` is all that a
# fresh machine needs; each installs what it lacks.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=

.PHONY: demo test faults features check lint-deploy bench settings lock cluster chaos temporal-cluster install temporal clean

# A turn that loses its worker in the middle of a tool call; no API key is needed. It obtains
# the Temporal server itself.
demo: install
	@$(BIN)/python examples/demo.py

test: install temporal
	@command -v bwrap >/dev/null || echo "Tests of run_command are skipped: install bubblewrap (apt-get install bubblewrap)." >&2
	@command -v redis-server >/dev/null || echo "Tests of the governor on Redis are skipped: install redis-server (apt-get install redis-server)." >&2
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null || echo "Tests of the store on PostgreSQL are skipped: install postgresql (apt-get install postgresql)." >&2
	@command -v npm >/dev/null || echo "Tests of MCP's reference servers are skipped: install Node and npm (apt-get install npm)." >&2
	$(BIN)/pytest -n 2 $(PYTEST_ARGS)

# The longer proofs: every kill and a thousand races, with all tests of their areas; then what else
# is long, of which whole clusters need the machine for themselves.
faults: install temporal
	$(BIN)/pytest -n 2 -m "long or not long" tests/faults tests/turn tests/demo $(PYTEST_ARGS)
	$(BIN)/pytest -m long tests --ignore=tests/faults --ignore=tests/turn --ignore=tests/demo $(PYTEST_ARGS)

# The list of features, and which of them their tests show.
features: install temporal
	$(BIN)/python tests/rows.py -n 2 tests $(PYTEST_ARGS)

check: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory lint-deploy

# What containers are made and started by. compose-go is Docker's own reader of such files.
COMPOSE := deploy/compose.yaml deploy/compose.sandbox.yaml
COMPOSE_GO := github.com/compose-spec/compose-go/v2/cmd@v2.16.2

lint-deploy: install
	$(BIN)/hadolint deploy/Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec $(COMPOSE)
	@if command -v go >/dev/null; then \
	    test -x $(VENV)/go/cmd || GOBIN=$(abspath $(VENV))/go go install $(COMPOSE_GO); \
	    $(VENV)/go/cmd -no-interpolation $(COMPOSE) >/dev/null; \
	else echo "deploy/compose.yaml is not read by compose-go: install Go." >&2; fi

bench: install temporal
	$(BIN)/python tests/bench

# Temporal, PostgreSQL, Redis, 2 APIs and 4 workers as plain processes: ARGS="--help" says more.
cluster: install temporal
	@$(BIN)/python deploy/local $(ARGS)

# Five minutes of load on a cluster with a kill every few seconds, by a seed that it prints:
# ARGS="--seed N" kills the same again, ARGS=--rolling restarts all workers and APIs instead.
chaos: install temporal
	@$(BIN)/python tests/cluster $(ARGS)

# The Temporal server that clusters run, on PostgreSQL; without it the embedded one stands in.
temporal-cluster: install
	@$(BIN)/python deploy/local --build-temporal

# What the image is made of, by version and hash: run it to take newer versions, or where pyproject.toml
# asks for more. It needs uv; the Python is the one of deploy/Dockerfile.
LOCK := uv pip compile --quiet --upgrade --generate-hashes --no-annotate --python-version 3.11.15 \
    --python-platform linux --custom-compile-command "make lock"
lock:
	$(LOCK) --output-file deploy/requirements.lock pyproject.toml
	$(LOCK) --output-file deploy/build.lock --group pyproject.toml:image

# The README's table of settings, from their descriptions.
settings: install
	@$(BIN)/python -m everturn_workers.settings_table README.md

install: $(STAMP)

$(STAMP): pyproject.toml scripts/install
	@sh scripts/install $(VENV)
	@touch $@

# Minutes at the first time where the server must be built, nothing afterwards.
temporal: install
	@$(BIN)/python -m everturn_workers.fetch

clean:
	rm -rf $(VENV)
