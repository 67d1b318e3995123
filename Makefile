# Two commands do everything: `make demo` shows tidelog at work, `make test` proves it.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := $(VENV)/.installed-demo
ALL    := $(VENV)/.installed-all$(if $(SPARK),-spark-$(SPARK))
BENCH  := $(VENV)/.installed-bench
WITH_JAVA := . scripts/java.sh &&
# As many workers as the machine bears (tests/machine.py), each file as a whole, the longest first (tests/schedule.py).
TOGETHER := -n auto --dist loadfile --no-loadscope-reorder
# The tests end with make, however it ends (tests/reaper.py).
WITH_SERVERS := . scripts/java.sh && scripts/servers.sh && export TIDELOG_TESTS_MAKE=$$PPID && exec

# Hundreds of Python processes start in a run: none compiles what another has compiled. Kept out of the source folders.
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-long sim check bench docs format lock clean

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEMO) ## Stream a shop from an embedded PostgreSQL into Delta and verify it (KEEP=1 leaves it running)
	@$(WITH_JAVA) $(BIN)/python -m demo.run $(if $(KEEP),--keep)

test: $(ALL) ## Install what the tests need, and run them (SPARK=4.3.0 for another Spark than the locked one)
	@$(WITH_SERVERS) $(BIN)/pytest $(TOGETHER) -m "not long" $(ARGS)

test-long: $(ALL) ## The full campaigns: more seeds, more kills, more servers
	@$(WITH_SERVERS) $(BIN)/pytest $(TOGETHER) --hypothesis-profile=anew $(ARGS)

sim: $(ALL) ## Replay one seed of the snapshot simulation, step by step (SEED=7, FAULT=no-floor for a known mistake)
	@$(BIN)/python -m tests.simulation $(SEED) $(FAULT)

check: $(ALL) ## Lint, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(BENCH) ## Measure side by side with pg_recvlogical and Debezium (EVENTS=140000 ROWS=50000 for a quick look)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.stream $(if $(EVENTS),--events $(EVENTS))
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.latency
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.snapshot $(if $(ROWS),--rows $(ROWS))
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.buffer $(if $(EVENTS),--events $(EVENTS))
	@$(BIN)/python -m benchmarks.redo

docs: $(ALL) ## Write the settings reference anew
	$(BIN)/python scripts/settings_reference.py

format: $(ALL) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(ALL) ## Resolve the dependencies anew into requirements.lock
	scripts/lock.sh

clean: ## Remove what the targets made
	rm -rf $(VENV) .tidelog .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse

$(DEMO): pyproject.toml requirements.lock
	@PYTHON=$(PYTHON) scripts/install.sh postgres,delta,server,demo
	@rm -f $(VENV)/.installed-*
	@touch $@

$(ALL): pyproject.toml requirements.lock
	@PYTHON=$(PYTHON) SPARK=$(SPARK) scripts/install.sh postgres,oracle,iseries,delta,server,demo,test,check
	@rm -f $(VENV)/.installed-*
	@touch $@ $(if $(SPARK),,$(DEMO))

$(BENCH): pyproject.toml requirements.lock
	@PYTHON=$(PYTHON) scripts/install.sh postgres,oracle,iseries,delta,server,demo,test,check,bench
	@rm -f $(VENV)/.installed-*
	@touch $@ $(VENV)/.installed-all $(DEMO)
