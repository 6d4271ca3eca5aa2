# Every task of this repository in one word each; `make help` lists them.
# A machine with python3 >= 3.11 is enough: everything else goes into .venv.

PYTHON ?= python3
PORT ?= 8080
DEMO_PORT ?= 8081

VENV := .venv
BIN := $(VENV)/bin
SUITES = $(shell grep -rlE '^class .*SynchronousTestCase' --include='test_*.py' --exclude=test_clean.py tests | sort)
# What pytest does by itself: helpers are found beside the tests that use them.
empty :=
HELPERS = tests:bench:$(subst $(empty) $(empty),:,$(sort $(dir $(SUITES))))

# command:package of what the benches put beside the gateway, or look at it with.
RIVALS := nginx:nginx-light haproxy:haproxy wrk:wrk h2load:nghttp2-client strace:strace valgrind:valgrind perf:linux-perf

# Of what a wheel is made, and what is tried against the compiled one: suites that go through public seams, without
# those of e2e that measure, or are about processes, of which nothing is compiled.
# LEVEL is how much the C compiler optimizes; what tests try takes two fifths of the time.
LEVEL ?= 3
COMPILED = build/compiled$(addprefix -O,$(filter-out 3,$(LEVEL)))
SOURCE = hatch_build.py pyproject.toml $(shell find protogate codecs twisted -type f ! -name '*.pyc' ! -name dropin.cache)
SEAMS = $(addprefix tests/,cases conformance exchange/test_exchange.py identity mini_codec observe/test_record.py \
    observe/test_tally.py ordered protogate_http protogate_sotp upstream test_body.py test_compiled.py test_halves.py \
    test_interop.py test_promise.py test_release.py test_wheel.py $(addsuffix .py,$(addprefix e2e/test_, \
    clients curl grpc_sotp nginx_upstream reload translation tunnels websocket)) \
    $(addsuffix .py,$(addprefix governance/test_,accesslist addresponseheader basicauth bodylimit cors gcra identity_cache \
    jwtauth keyauth leases over_codecs ratelimit rbac removeheader rewritepath setrequestheader)))

# What runs on a reactor, and in gateways, of another kind than everything else does; without those that measure.
REAL = $(addprefix tests/,admin downstream observe process upstream test_demo.py $(addsuffix .py,$(addprefix e2e/test_, \
    clients curl listening nginx_upstream overloaded proxies reload stop tunnels upstreams websocket)))

# Of pytest-xdist: one process more than there are cores (tests/conftest.py); fixtures of a module are made once.  Its
# own order, by the number of tests, would leave the dearest files, which have few, to the end.
ALL_CORES := --numprocesses=auto --maxprocesses=8 --dist=loadfile --no-loadscope-reorder

# Some machines ask Python to keep no bytecode.  Each of a thousand gateways that tests start would compile all source
# anew, a third of what it does, and each process that tests are shared out to would rewrite all of them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: run test lint types docs trial pytest compiled compiledtests bench simulate format clean help neighbours

run: $(VENV)/run.stamp  ## start a gateway with a demo upstream; PORT=8080 DEMO_PORT=8081
	@mkdir -p build
	@sed -e 's/127\.0\.0\.1:8080/127.0.0.1:$(PORT)/' -e 's/127\.0\.0\.1:8081/127.0.0.1:$(DEMO_PORT)/' \
	    examples/gateway.yaml > build/gateway.yaml
	@$(BIN)/python -m protogate.demo --port $(DEMO_PORT) --try http://127.0.0.1:$(PORT)/hello \
	    -- $(BIN)/protogate run -c build/gateway.yaml

# The compiler works beside all else, and gets what that leaves: tests wait more than they do.  Where it fails,
# compiledtests tries again and shows why.
test: neighbours $(VENV)/test.stamp  ## everything that must hold: style, types, docs, trial, pytest with coverage, compiled
	@mkdir -p build; \
	{ $(BIN)/python hatch_build.py && nice -n 19 $(MAKE) --no-print-directory compiled LEVEL=g; } >build/compiled.log 2>&1 & \
	status=0; $(MAKE) --no-print-directory lint types docs trial pytest || status=$$?; wait; \
	[ $$status = 0 ] || [ -n '$(findstring k,$(firstword -$(MAKEFLAGS)))' ] || exit $$status; \
	$(MAKE) --no-print-directory compiledtests LEVEL=g || status=$$?; exit $$status

lint: $(VENV)/test.stamp  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/test.stamp  ## mypy, strict
	$(BIN)/mypy

docs: $(VENV)/test.stamp  ## build/docs/index.html; warnings are errors
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs

trial: $(VENV)/test.stamp  ## the trial-style suites, with trial
	PYTHONPATH=$(HELPERS) $(BIN)/trial --temp-directory=build/trial $(SUITES)

# Some tests do not cover all: the gate is for all of them, once.  pytest rewrites a test file the first time it sees
# it: here one process does, where all that tests are shared out to would each do it for all, and be measured.
# Gateways choose uvloop's reactor, and tests Twisted's default; what needs a real reactor runs the other way round, too.
pytest: $(VENV)/test.stamp  ## all tests, with branch coverage; ARGS="-k name" for some
	@mkdir -p build/coverage
	@$(BIN)/coverage erase
	$(if $(strip $(ARGS)),,@$(BIN)/python -m pytest --collect-only -qq >/dev/null || true)
	$(BIN)/coverage run -m pytest $(or $(strip $(ARGS)),$(ALL_CORES))
	$(if $(strip $(ARGS)),,TEST_REACTOR=protogate-uv GATEWAY_REACTOR=epoll $(BIN)/python -m pytest $(ALL_CORES) $(REAL))
	@$(BIN)/coverage combine -q
	$(BIN)/coverage report $(if $(strip $(ARGS)),--fail-under=0)

compiled: $(COMPILED)/made.stamp  ## build/compiled: a virtual environment with the compiled build (docs/compiled.md)

# Only what is installed there is tried, never the source beside it: hence no current directory on the path.
compiledtests: $(VENV)/test.stamp  ## the suites that go through public seams, against the compiled build
	@if $(BIN)/python hatch_build.py; then \
	    $(MAKE) --no-print-directory compiled && PYTHONSAFEPATH=1 $(COMPILED)/bin/python -m pytest --compiled $(ALL_CORES) $(SEAMS); \
	else echo 'the compiled build is not tested' >&2; [ "$${CI:-}" != true ]; fi

bench: $(VENV)/bench.stamp  ## this gateway beside others, into docs/performance.md; ARGS="--rows get --seconds 10"
	@NEIGHBOURS='$(RIVALS)' .ci/neighbours
	@! $(BIN)/python hatch_build.py || $(MAKE) --no-print-directory compiled
	$(BIN)/python bench/compare.py --write docs/performance.md $(ARGS)

simulate: $(VENV)/test.stamp  ## a thousand seeds of each story (docs/simulation.md); ARGS="--story NAME --seeds 100"
	$(BIN)/python -m protogate.testing.simulation --seeds 1000 $(ARGS)

format: $(VENV)/test.stamp  ## mend style where ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

neighbours:
	@.ci/neighbours

clean:  ## back to what git knows
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis _trial_temp*
	find . -name __pycache__ -prune -exec rm -rf {} + -o -name dropin.cache -exec rm -f {} +

help:
	@echo 'make WORD, where WORD is one of'
	@sed -n 's/^\([a-z]*\):.*  ## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 12

$(VENV)/made.stamp:
	@.ci/venv '$(PYTHON)' $(VENV)
	@touch $@

$(VENV)/run.stamp: pyproject.toml $(VENV)/made.stamp
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[ngh2]'
	@touch $@

$(VENV)/test.stamp: pyproject.toml $(VENV)/made.stamp
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test,docs,dev]'
	@touch $@ $(VENV)/run.stamp

$(COMPILED)/made.stamp: $(SOURCE) $(VENV)/test.stamp
	@rm -rf build/wheel
	MYPYC_OPT_LEVEL=$(LEVEL) HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(BIN)/python -m hatchling build -t wheel -d build/wheel
	@[ -x $(COMPILED)/bin/python ] || $(BIN)/python -m venv $(COMPILED)
	$(COMPILED)/bin/pip install --quiet --disable-pip-version-check "$$(ls build/wheel/*.whl)[test]"
	$(COMPILED)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps build/wheel/*.whl
	@touch $@

$(VENV)/bench.stamp: pyproject.toml $(VENV)/made.stamp
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@ $(VENV)/run.stamp
