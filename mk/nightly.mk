# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Tests that do not fit into CI: make nightly runs all of them.

##@ Nightly

.PHONY: mimir
mimir: $(BIN)/mimir ## Build Mimir, with which nightly tests compare the embedded Prometheus (8 minutes on 2 cores)

$(BIN)/mimir: hack/tools/mimir/go.mod
	cd hack/tools/mimir && $(GO) build -ldflags '-s -w' -o $@ github.com/grafana/mimir/cmd/mimir

KEDA := github.com/kedacore/keda/v2

.PHONY: keda
keda: ## Build KEDA, which a nightly test runs beside Crane
	cd hack/tools/keda && $(GO) build -ldflags '-s -w' -o $(BIN)/keda-operator $(KEDA)/cmd/operator && $(GO) build -ldflags '-s -w' -o $(BIN)/keda-adapter $(KEDA)/cmd/adapter
	install -D -m 644 -t $(BIN)/keda-crds $$(cd hack/tools/keda && $(GO) list -m -f '{{.Dir}}' $(KEDA))/config/crd/bases/*.yaml

# How long `make chaos` injects faults, and the seed of a sequence to repeat.
DURATION ?= 1h
SEED ?=

.PHONY: chaos
chaos: build $(BIN)/kubectl ## Random faults of craned, metric-adapter, an agent and Prometheus for DURATION while invariants are checked; SEED=N repeats a sequence
	CRANE_BIN=$(BIN) CRANE_CHAOS_DURATION=$(DURATION) CRANE_CHAOS_SEED=$(SEED) $(GO) test -count=1 -v -timeout 12h -run '^TestChaos$$' ./test/e2e

.PHONY: test-rbac
test-rbac: $(BIN)/controlplane $(BIN)/crane-scheduler ## Run the integration tests with the race detector and audit logs, and fail for each verb of config/rbac that no component used
	@rm -rf .cache/audit && mkdir -p .cache/audit
	CRANE_AUDIT_DIR=$(CURDIR)/.cache/audit $(MAKE) test-integration DETECTOR=-race PACKAGES_AT_ONCE=2
	CRANE_AUDIT_DIR=$(CURDIR)/.cache/audit $(GO) test -count=1 ./test/rbacusage

.PHONY: test-autoscaler
test-autoscaler: ## The taint of loaded nodes in Karpenter's scheduling simulation, which is built from its module
	cd hack/autoscaler && $(GO) test -vet=off ./...

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME
	@hack/fuzz.sh $(FUZZTIME)

.PHONY: dirty
dirty: ## Print the share of right recommendations from damaged series by kind of fault, for an hour; ARGS="10m" for less
	@CRANE_DIRTY=$(or $(ARGS),1h) $(GO) test -count=1 -timeout 0 -v -run TestDirtySeries ./test/dirty

.PHONY: messy
messy: $(BIN)/controlplane ## Adopt random workloads in random namespaces while random events happen, for an hour, and check that it does no harm; ARGS="5m" for less, SEED=N CASE=M repeats a case
	CRANE_CONTROLPLANE=$(BIN)/controlplane CRANE_MESSY=$(or $(ARGS),1h) CRANE_MESSY_SEED=$(SEED) CRANE_MESSY_CASE=$(CASE) $(GO) test -count=1 -timeout 0 -v -run '^TestMessy$$' ./test/integration/messy

.PHONY: nightly
nightly: build $(BIN)/kubectl ## What does not fit into CI: all tests with the race detector, unused rights, Karpenter's simulation, emulated machines, CRI-O, Crane by its chart on real nodes, and fuzzing
	$(GO) test -race $(TEST_FLAGS) -timeout 60m ./pkg/... ./internal/...
	CRANE_NIGHTLY=1 CRANE_CONTROLPLANE=$(BIN)/controlplane $(GO) test $(TEST_FLAGS) -count=1 -timeout 60m -run 'TestKillAtEveryWrite|TestUndoFromEachStep|TestAway|TestSecondCluster' ./test/integration/migrate
	CRANE_NIGHTLY=1 CRANE_BIN=$(BIN) $(GO) test -count=1 -timeout 30m -run 'TestDashboardsHaveData|TestAlertsAreQuiet' ./test/e2e
	CRANE_NIGHTLY=1 CRANE_CLI=$(BIN)/crane CRANE_CONTROLPLANE=$(BIN)/controlplane $(GO) test -count=1 -timeout 20m -v -run TestManyRecommendations ./test/integration/dashboard
	CRANE_LIFE_STEPS=100000 TMPDIR=/dev/shm $(GO) test -count=1 -timeout 4h -run '^TestLifeOfContainers$$' ./internal/agent
	$(MAKE) test-autoscaler keda mimir
	CRANE_NIGHTLY=1 CRANE_STORES=$(BIN) CRANE_CONTROLPLANE=$(BIN)/controlplane $(GO) test -count=1 -timeout 20m -v -run 'TestKEDA|Mimir' ./internal/metrics/prometheus ./test/integration/metricadapter ./test/integration/prediction
	$(MAKE) install-nodes build-crio test-nodes test-cluster
	CRANE_NIGHTLY=1 $(GO) test -count=1 -timeout 60m ./test/release
	$(MAKE) test-rbac
	$(MAKE) bench-requests
	$(MAKE) images
	cd hack/images && CRANE_REPRODUCIBLE='$(IMAGES)' $(GO) test -count=1 -timeout 90m -run 'TestReproducible|TestDockerfile' .
	CRANE_HPA_CASES=2000000 $(GO) test -count=1 -timeout 60m -run '^TestHPA(Calculator|Controller)$$' ./internal/autoscaling/controller/ehpa
	$(MAKE) messy ARGS=20m
	$(MAKE) chaos DURATION=30m
	$(MAKE) fuzz FUZZTIME=1m
	$(MAKE) vulncheck audit-web
