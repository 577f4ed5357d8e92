# make demo runs the main job, make test passes the tests; both install and build what they need first.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
REQUIREMENTS := requirements/dev.txt requirements/uv.txt pyproject.toml
VERSION ?= 1.37
NODES ?= 1
CLUSTERS ?= 4
CHART ?= 1
KEEP ?= 0

.PHONY: help
help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 14

# --- building ---------------------------------------------------------------------------------------------

.PHONY: build
build: $(VENV)/.ready interposer fakegpu ## .venv with everything in it, the interposer, the fake GPU

$(VENV)/.ready: $(REQUIREMENTS) hatch_build.py $(wildcard protos/*/*.proto) interposer/include/tessera_abi.h \
		interposer/include/tessera_access.h
	@PYTHON=$(PYTHON) ./tests/cluster/bootstrap.sh $(VENV)
	@touch $@

.PHONY: interposer
interposer: $(VENV)/.ready
	@$(MAKE) -s --no-print-directory -C interposer PYTHON=$(abspath $(PY))

.PHONY: fakegpu
fakegpu: $(VENV)/.ready
	@$(MAKE) -s --no-print-directory -C tests/fakegpu PYTHON=$(abspath $(PY))

# --- a real Kubernetes on this machine --------------------------------------------------------------------

.PHONY: demo
demo: build ## a HAMi Pod on a real Kubernetes here, step by step (KEEP=1: leave it running; VERSION=1.36)
	@$(PY) -m tests.cluster.demo --version $(VERSION) $(if $(filter 1,$(KEEP)),--keep)

.PHONY: kind-demo
kind-demo: build ## the same on a kind cluster, with your docker, kind, kubectl, helm (VERSION=1.35 NODE_IMAGE= KEEP=1)
	@$(PY) -m tests.cluster.demo --kind --version $(VERSION) $(if $(NODE_IMAGE),--node-image $(NODE_IMAGE)) \
	  $(if $(filter 1,$(KEEP)),--keep)

.PHONY: cluster-up
cluster-up: build ## a running cluster, the chart installed (VERSION=1.36.3 NODES=2 CHART=0)
	@$(PY) -m tests.cluster up --version $(VERSION) --nodes $(NODES) $(if $(filter 0,$(CHART)),--no-chart)

.PHONY: cluster-down
cluster-down: $(VENV)/.ready ## ends it, and leaves nothing
	@$(PY) -m tests.cluster down

# --- proof ------------------------------------------------------------------------------------------------

.PHONY: test
test: test-c test-python test-conformance test-cluster ## everything: C, Python, a kubelet's part, real clusters (1.37, 1.36)

.PHONY: prepare
prepare: build # what is slow, once; here its progress can be seen
	@$(PY) -m tests.cluster prepare

.PHONY: test-c
test-c: prepare
	@$(MAKE) -s --no-print-directory -C interposer PYTHON=$(abspath $(PY)) test

$(VENV)/clients/.ready: requirements/clients.txt | $(VENV)/.ready
	@printf '\033[1m==>\033[0m %s\n' "real CUDA programs, for tests"
	@$(VENV)/bin/uv venv -q --allow-existing --python $(PY) $(VENV)/clients
	@$(VENV)/bin/uv pip install -q --python $(VENV)/clients/bin/python --require-hashes -r $<
	@touch $@

.PHONY: clients
clients: $(VENV)/clients/.ready ## .venv/clients: numba-cuda and cuda-bindings, which tests run on the fake driver

.PHONY: test-python
test-python: build clients
	@$(PY) -m pytest -q tests/unit tests/integration

.PHONY: test-conformance
test-conformance: prepare # our agent; a peer beside it where PEER_DRA_EXAMPLE names its binary
	@$(PY) -m pytest -q tests/conformance

.PHONY: test-cluster
test-cluster: prepare # so many clusters at once: a test waits most of its time (1.3 GiB and half a core each)
	@$(PY) -m pytest -q tests/cluster -n $(CLUSTERS)

.PHONY: bench
bench: build ## ratios against a bare run or a peer, in the same run
	@for bench in tests/bench/*; do \
	  if [ -f $$bench ] && [ -x $$bench ]; then echo "== $$bench"; $$bench || exit 1; fi; done

.PHONY: lint
lint: build ## ruff, mypy --strict, clang-tidy, shellcheck
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy .
	@$(VENV)/bin/shellcheck $$(git ls-files '*.sh' .ci/run)
	@$(MAKE) -s --no-print-directory -C interposer PYTHON=$(abspath $(PY)) tidy CLANG_TIDY=$(abspath $(VENV)/bin/clang-tidy)
	@$(MAKE) -s --no-print-directory -C tests/fakegpu PYTHON=$(abspath $(PY)) tidy CLANG_TIDY=$(abspath $(VENV)/bin/clang-tidy)

.PHONY: format
format: $(VENV)/.ready ## ruff format
	@$(VENV)/bin/ruff format .
	@$(VENV)/bin/ruff check --fix .

.PHONY: lock
lock: $(VENV)/.ready ## new pins for requirements/ (hashes, no addresses)
	@for file in run dev uv clients; do \
	  case $$file in run) in=pyproject.toml;; dev) in="pyproject.toml requirements/dev.in";; *) in=requirements/$$file.in;; esac; \
	  $(VENV)/bin/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-header -o requirements/$$file.txt $$in; done

.PHONY: clean
clean: ## what was built in the checkout; the cache outside stays
	@rm -rf $(VENV) dist .cluster interposer/build interposer/_abi.py tests/fakegpu/build
	@find protos -name '*_pb2*.py*' -delete
