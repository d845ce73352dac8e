# SPDX-License-Identifier: Apache-2.0
# Every verb sets up what it needs. `make` alone lists them.

PYTHON ?= python3
VENV := .venv/bin
READY := .venv/.ready
ETCD := .cache/bin/etcd
KERNEL := $(wildcard $(addprefix libs/kernel/,*.py *.pxd */*.py */*.pxd) libs/formats/fields.pxd) \
	$(wildcard libs/runtime/http2/session/*_cy.pyx libs/runtime/http2/session/*.pxd)
SPEEDUPS := cd clients/python && REPUT_CLIENT_SPEEDUPS=1 $(CURDIR)/$(VENV)/python setup.py --quiet build_ext --inplace
TESTS ?=

# Which folders a verb runs; paths in TESTS stand in for them.
FAST := tests/unit tests/golden tests/property tests/smoke clients/python/tests
SERVICES := tests/exhaustive clients/pytest/tests clients/kombu/tests clients/faststream/tests clients/outbox/tests tests/e2e tests/crash tests/cost tests/harm tests/clients tests/interop
# the folders whose code calls the kernel, directly or through a format
PURE := $(addprefix tests/unit/libs/,kernel formats filters log) $(addprefix tests/unit/services/,commitlog indexer delivery/rpc) \
	$(wildcard tests/unit/cli/test_inspect*.py) tests/golden tests/property \
	$(addprefix tests/exhaustive/,commitlog indexer kernel log replication cli/test_inspect.py) \
	tests/cost/test_append.py tests/cost/test_dispatch.py
SPARK := tests/spark clients/spark/tests
folders = $(if $(filter tests/% clients/%,$(TESTS)),,$(1)) $(TESTS)
PARALLEL := REPUT_REQUIRE_EXTENSIONS=1 $(VENV)/python -m pytest -n auto --no-loadscope-reorder

# Python's bytecode stays in .cache, also where the surroundings want none: tests start some thousand processes.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/bytecode

.DEFAULT_GOAL := help
.PHONY: help test-console setup wheels demo test test-services check test-pure test-containers test-kubernetes test-clients clients failovers interop conformance timed crash crash-long crash-planted crash-planted-rounds crash-planted-shards attack alarm-drills sanitize harm lint format gen bench bench-full bench-spark bench-deletion bench-backup bench-shards bench-console test-long test-spark spark-matrix spark-dist clean

help: ## list the verbs
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-15s %s\n", $$1, $$2}'

setup: $(READY) ## check the machine, make .venv from the lock, compile the kernel

$(READY): pyproject.toml uv.lock setup.py tools/setup_environment.py $(KERNEL)
	@$(PYTHON) tools/setup_environment.py

$(ETCD): tools/etcd/go.mod
	@tools/etcd/build.sh $(ETCD)

demo: $(READY) ## run everything on a real data set and check every answer; KEEP=DIR keeps the store, KEEP=1 keeps it open with a console
	@KEEP="$(KEEP)" $(VENV)/python -m demo

test: $(READY) ## the tests without services, and each main path through services once; TESTS='-k name' narrows them
	@$(PARALLEL) --dist loadfile $(call folders,$(FAST))

test-services: $(READY) $(ETCD) ## services as processes: killed, cut off, filled up; the command line, elections, wheels, the simulators; searches of every crash point and random histories
	@$(PARALLEL) --dist loadfile $(call folders,$(SERVICES))

test-spark: $(READY) ## the Spark connector, by itself and in Spark
	@$(PARALLEL) --dist loadgroup $(call folders,$(SPARK))

check: lint test test-services test-spark ## lint, test, test-services and test-spark

test-pure: $(READY) ## the tests of the kernel and all that stands on it, with the uncompiled kernel
	@REPUT_NO_EXTENSIONS=1 $(VENV)/python -m pytest -m "not slow" $(call folders,$(PURE))

wheels: ## build wheels of client, server, stubs, Spark connector and plug-in of pytest, constraints and SBOM into dist/; needs a C compiler, no Java; PYTHONS='python3.12 python3.13' for others
	@$(PYTHON) -m tools.wheels $(PYTHONS)

test-containers: $(READY) ## image, compose and chart on a real container engine (Debian, root); starts and stops its own
	@tests/e2e/deploy/tools.sh
	@tests/e2e/deploy/engine.sh start
	@tests/e2e/deploy/engine.sh run $(VENV)/python -m pytest -m "containers or not containers" tests/e2e/deploy $(TESTS); \
		code=$$?; tests/e2e/deploy/engine.sh stop; exit $$code

test-kubernetes: $(READY) ## elections by a Lease of Kubernetes' own API server, which it builds (Go 1.26, etcd); failovers are measured
	@tests/e2e/deploy/apiserver.sh
	@$(VENV)/python -m pytest -s -m "not long" tests/e2e/test_kubernetes.py tests/e2e/test_kubernetes_elections.py tests/e2e/test_failovers.py tests/e2e/deploy/test_rights.py tests/e2e/deploy/test_claims.py $(TESTS)

failovers: $(READY) ## how long nobody takes appends when a leader dies or hands over, by etcd; COUNT=50; prints histograms
	@REPUT_FAILOVERS=$(or $(COUNT),20) $(VENV)/python -m pytest -s -m long tests/e2e/test_failovers.py $(TESTS)

interop: $(READY) ## Apache RocketMQ opens our stores and we open its; needs Java and Maven
	@$(PARALLEL) --dist load -m interop tests/interop $(TESTS)

conformance: $(READY) ## gRPC's clients for Go, Java and Node, h2spec and grpcurl against both fronts, FastStream's test classes for brokers; needs Go, Java, Maven, Node
	@$(VENV)/python -m pytest -m conformance $(or $(TESTS),tests/conformance clients/faststream/tests)

test-clients: $(READY) $(ETCD) ## one table of cases for the clients of all languages, by a gateway; DIRECT=1 without it, LANGUAGE=go and ONLY=text narrow; needs Go, Java, Maven, Node
	@$(VENV)/python -m tests.clients.table $(addprefix --language ,$(LANGUAGE)) $(if $(ONLY),--only '$(ONLY)') \
		$(if $(DIRECT),--direct)

clients: $(READY) ## RocketMQ 5's own clients against the gateway, language by feature; LANGUAGE='java go' and ONLY=text narrow, SHARDS=3 puts three shards behind it, CHANGES=1 splits, moves and merges queues meanwhile; fetches them; needs Go, Java, Maven, Node, Rust
	@$(VENV)/python -m tests.gateway.table $(addprefix --language ,$(LANGUAGE)) $(if $(ONLY),--only '$(ONLY)') \
		$(if $(SHARDS),--shards $(SHARDS)) $(if $(CHANGES),--changes)

timed: $(READY) ## 20,000 messages at random times of a minute, in real time: how late they come; COUNT=N and SECONDS=S
	@$(VENV)/python -m tests.timed $(if $(COUNT),--count $(COUNT)) $(if $(SECONDS),--seconds $(SECONDS))

crash: $(READY) $(ETCD) ## kill it, fail its disk, cut its power, check what is promised; SEED=N repeats, ONLY=kill and COUNT=N narrow
	@$(VENV)/python -m tests.crash --size ci $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) \
		$(if $(COUNT),--count $(COUNT))

crash-long: $(READY) $(ETCD) ## the same for hours: 45,000 simulated seeds, over 1,000 SIGKILLs, 240 power cuts
	@$(VENV)/python -m tests.crash --size long $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY))

crash-planted: $(READY) ## plant bugs in a copy and show that the crash harness catches each; ONLY=text and PART=cluster narrow
	@$(VENV)/python -m tests.crash.planted $(if $(ONLY),--only '$(ONLY)') $(if $(PART),--part $(PART))

crash-planted-rounds: $(READY) ## the same for three logs as processes: as root, some minutes
	@$(VENV)/python -m tests.crash.rounds.planted

crash-planted-shards: $(READY) ## the same for topics over shards as processes
	@$(VENV)/python -m tests.crash.shards.planted

attack: $(READY) ## greedy clients and hostile requests; what each costs in memory, pauses and others' time; SEED=N repeats, ONLY=row, COUNT=N, SECONDS=S and JSON=FILE
	@$(VENV)/python -m tests.attack $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) \
		$(if $(COUNT),--count $(COUNT)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(JSON),--json $(JSON))

alarm-drills: $(READY) $(ETCD) ## a real Prometheus with our rules sees services killed, frozen, full: the expected alarm and no other; ONLY=text, JOBS=N, SECONDS=S for S of normal load
	@$(VENV)/python -m tests.alarms $(if $(ONLY),--only '$(ONLY)') $(if $(JOBS),--jobs $(JOBS)) $(if $(SECONDS),--calm $(SECONDS))

sanitize: $(READY) ## hostile bytes for the front's compiled session under the sanitizers of addresses and undefined behaviour; SECONDS=S, SEED=N
	@$(VENV)/python -m tools.sanitize_session $(or $(SECONDS),60) $(SEED)

harm: $(READY) ## harm every file of a store in every way, running, killed and stopped; SEED=N repeats, ONLY='running:*:index/*', JOBS=N and JSON=FILE
	@$(VENV)/python -m tests.harm $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only '$(ONLY)') \
		$(if $(JOBS),--jobs $(JOBS)) $(if $(JSON),--json $(JSON))

lint: $(READY) ## ruff, mypy --strict, import rules, style rules, buf, stubs, synchronous client and generated docs up to date
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check .
	@$(VENV)/mypy
	@$(VENV)/lint-imports --no-cache
	@$(VENV)/python -m pytest -q tests/house
	@$(VENV)/python -m tools.gen_stubs --check
	@$(VENV)/python -m tools.gen_kernel_layout --check
	@$(VENV)/python -m tools.gen_field_numbers --check
	@$(VENV)/python -m tools.gen_sync_client --check
	@$(VENV)/buf lint protos
	@$(VENV)/python -m tools.gen_config_docs --check
	@$(VENV)/python -m tools.gen_metrics_docs --check
	@$(VENV)/python -m tools.gen_chart_schema --check
	@$(VENV)/python -m tools.gen_abilities --check
	@$(VENV)/python -m tools.boards --check
	@$(VENV)/codespell

format: $(READY) ## let ruff put the code into shape
	@$(VENV)/ruff check --fix --quiet .
	@$(VENV)/ruff format --quiet .

test-console: $(READY) ## the console's pages in Chromium: keyboard, colours, widths, hostile text, outages, axe-core; SHOTS=DIR keeps screenshots
	@SHOTS="$(SHOTS)" $(VENV)/python -m pytest -m console tests/console

gen: $(READY) ## generate stubs, numbers of fields and of the kernel, the synchronous client and docs from their sources
	@$(VENV)/python -m tools.gen_stubs
	@$(VENV)/python -m tools.gen_kernel_layout
	@$(VENV)/python -m tools.gen_field_numbers
	@$(VENV)/python -m tools.gen_sync_client
	@$(VENV)/python -m tools.gen_config_docs
	@$(VENV)/python -m tools.gen_metrics_docs
	@$(VENV)/python -m tools.gen_chart_schema
	@$(VENV)/python -m tools.gen_abilities
	@$(VENV)/python -m tools.boards

bench: $(READY) ## measure Reput beside RocketMQ, Kafka, NATS and Redis, in minutes; ONLY=append-1KiB PEER=kafka narrow it
	@$(SPEEDUPS)
	@$(VENV)/python -m bench --size short $(if $(ONLY),--only $(ONLY)) $(if $(PEER),--peer $(PEER))

bench-full: $(READY) ## the same with every scenario, for an hour; JSON, a report and charts under bench/results
	@$(SPEEDUPS)
	@$(VENV)/python -m bench --size full $(if $(ONLY),--only $(ONLY)) $(if $(PEER),--peer $(PEER))

test-long: $(READY) $(ETCD) ## more kills, full disks and steps of the other tests; Spark on a cluster, streams that are killed, the pages' recipes
	@$(VENV)/python -m pytest -m "long or spark" --deselect tests/e2e/test_failovers.py $(call folders,tests/unit $(SERVICES) $(SPARK))

bench-spark: $(READY) ## Spark reads from Reput, Kafka and Parquet in turn; JSON and a table under bench/results
	@$(VENV)/python -m bench.spark

bench-deletion: $(READY) ## what deleting 50 segments does to appends, and to 100 readers of them
	@$(VENV)/python -m bench.deletion

bench-backup: $(READY) ## what a backup costs a store that is appended to as fast as it can take
	@$(VENV)/python -m bench.backup

bench-shards: $(READY) ## processor time of each service for a message, with one store and with two, four and eight shards
	@$(VENV)/python -m bench.shards

bench-console: $(READY) ## memory, processor time, first bytes and sizes of the console's pages, with 20 readers for 10 minutes
	@$(VENV)/python -m bench.console

spark-dist: $(READY) ## the Spark connector for clusters without it: a zip for --py-files, an environment for --archives
	@$(VENV)/python -m tools.spark_dist

spark-matrix: $(READY) ## the Spark connector's tests with PySpark 4.1, 4.2 and 4.3; downloads them once
	@$(VENV)/python -m tools.spark_matrix

clean: ## remove build products and the environment
	@rm -rf .venv .cache build demo/out bench/results/local
	@find libs -name '*.so' -delete -o -name '*_cy.c' -delete
