# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
BIN     := $(CURDIR)/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X crane.io/crane/internal/component/version.version=$(VERSION)
# Gives the Kubernetes binaries built from modules their version; the tests use the same file.
KUBERNETES_LDFLAGS := $(shell cat hack/controlplane-ldflags)

# Arguments for `make playground`, for example ARGS="--once --nodes 3".
ARGS ?=
# How long each fuzz target runs in `make fuzz`.
FUZZTIME ?= 30s

# Unit tests. The domain in pkg/ has no goroutines (pkg/nodeload apart) and runs without the race detector; of the other
# packages those with tests are compiled with it.
PURE := ./pkg/... ./test/architecture ./test/controlplanetest ./test/hostrecording ./test/monitoring ./test/release
RACE = ./pkg/nodeload $(filter-out $(ENGINE) $(SIMULATOR),$(shell $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' \
	./api/... ./config/... ./internal/... ./web | grep -v -e '/internal/testbed/controlplane/server$$' -e '/internal/scheduler/app$$'))
# Packages whose tests link a Prometheus server or an aggregated API server: compiling these takes longer than all unit
# tests, so they run with the integration tests, which link the same.
MODULE := crane.io/crane
ENGINE = $(MODULE)/internal/testbed/promserver $(patsubst %.test,%,$(filter %.test,$(shell $(GO) list -test \
	-f '{{range .Deps}}{{if or (eq . "$(MODULE)/internal/testbed/promserver") (eq . "k8s.io/apiserver/pkg/server")}}{{$$.ImportPath}} {{end}}{{end}}' ./internal/...)))
# Packages whose tests link kube-scheduler. They have one goroutine and run without the race detector.
SIMULATOR := $(addprefix $(MODULE)/internal/scheduler/,simulate simulate/engine)
# Tests are vetted by make lint. Without symbol tables test binaries link faster.
TEST_FLAGS := -vet=off -ldflags='-s -w'

##@ Run

.PHONY: playground
playground: build ## Start the whole system on this machine; ARGS="--once" stops after the first recommendations
	@$(BIN)/playground $(ARGS)

##@ Build

# What a user needs: Crane's binaries, and the Kubernetes control plane that the playground and the tests run against.
# `go build` decides itself what is current, so these targets always run it.
COMMANDS := craned crane crane-agent metric-adapter playground

.PHONY: build
build: ## Build every binary into bin/
	@GO=$(GO) hack/build.sh $(BIN) '$(LDFLAGS)' $(COMMANDS)
	@GO=$(GO) hack/build.sh $(BIN) '$(LDFLAGS) $(KUBERNETES_LDFLAGS)' crane-scheduler
	@GO=$(GO) hack/build.sh $(BIN) '$(KUBERNETES_LDFLAGS)' controlplane

.PHONY: FORCE
$(COMMANDS:%=$(BIN)/%): $(BIN)/%: FORCE
	@GO=$(GO) hack/build.sh $(BIN) '$(LDFLAGS)' $*

# crane-scheduler is kube-scheduler with plugins and reports its version to clients and in metrics.
$(BIN)/crane-scheduler: FORCE
	@GO=$(GO) hack/build.sh $(BIN) '$(LDFLAGS) $(KUBERNETES_LDFLAGS)' crane-scheduler

# The version of Crane is not in it, so that a commit does not link it again.
$(BIN)/controlplane: FORCE
	@GO=$(GO) hack/build.sh $(BIN) '$(KUBERNETES_LDFLAGS)' controlplane

.PHONY: tools
tools: $(BIN)/kubectl $(BIN)/controller-gen $(BIN)/golangci-lint ## Build what is needed beside Go (kubectl, controller-gen, golangci-lint) from modules

$(BIN)/kubectl: go.mod hack/controlplane-ldflags
	$(GO) build -ldflags '$(KUBERNETES_LDFLAGS)' -o $@ k8s.io/kubernetes/cmd/kubectl

$(BIN)/controller-gen: hack/go.mod
	cd hack && $(GO) build -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(BIN)/golangci-lint: hack/tools/golangci-lint/go.mod
	cd hack/tools/golangci-lint && $(GO) build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# Built for the tests of the chart and not by `make tools`: it is needed for an installation alone.
$(BIN)/helm: hack/tools/helm/go.mod
	cd hack/tools/helm && $(GO) build -ldflags "-s -w -X helm.sh/helm/v4/internal/version.version=$$($(GO) list -m -f '{{.Version}}' helm.sh/helm/v4)" \
	  -o $@ helm.sh/helm/v4/cmd/helm

# Without service discovery, which the tests of rules do not need.
$(BIN)/promtool: hack/tools/promtool/go.mod
	cd hack/tools/promtool && $(GO) build -tags remove_all_sd -ldflags '-s -w' -o $@ github.com/prometheus/prometheus/cmd/promtool

# Stores of metrics that the integration tests compare with the embedded Prometheus. Thanos needs Prometheus' labels as slices.
STORES := $(BIN)/prometheus $(BIN)/thanos

$(BIN)/prometheus: hack/tools/promtool/go.mod
	cd hack/tools/promtool && $(GO) build -tags remove_all_sd -ldflags "-s -w -X github.com/prometheus/common/version.Version=$$($(GO) list -m -f '{{.Version}}' github.com/prometheus/prometheus)" \
	  -o $@ github.com/prometheus/prometheus/cmd/prometheus

$(BIN)/thanos: hack/tools/thanos/go.mod
	cd hack/tools/thanos && $(GO) build -tags slicelabels -ldflags "-s -w -X github.com/prometheus/common/version.Version=$$($(GO) list -m -f '{{.Version}}' github.com/thanos-io/thanos)" \
	  -o $@ github.com/thanos-io/thanos/cmd/thanos

# Container images, built without a daemon. They have the time of the commit, so that the same commit has the same digests.
IMAGES := craned metric-adapter crane-scheduler crane-agent crane
PLATFORMS ?= linux/amd64,linux/arm64
# Registry and path to push to, for example PUSH=registry.example/crane; none by default.
PUSH ?=

# Arguments of hack/images for all builds.
RELEASE_FLAGS = -source $(CURDIR) -version '$(VERSION)' -platforms '$(PLATFORMS)' -revision "$$(git rev-parse HEAD)" -created "$$(git log -1 --format=%ct)" \
  -ldflags '$(LDFLAGS);crane-scheduler:$(KUBERNETES_LDFLAGS)'

.PHONY: images
images: ## Build the images for amd64 and arm64 into dist/images, with SBOMs; PUSH=registry.example/crane pushes them
	cd hack/images && $(GO) run . $(RELEASE_FLAGS) -out $(CURDIR)/dist/images -push '$(PUSH)' $(IMAGES)

.PHONY: sbom
sbom: ## Write an SPDX SBOM of each released binary and platform into dist/sbom
	cd hack/images && $(GO) run . -sbom $(RELEASE_FLAGS) -out $(CURDIR)/dist/sbom $(IMAGES)

.PHONY: chart
chart: $(BIN)/helm ## Package the chart into dist/
	$(BIN)/helm package charts/crane --destination dist

# Sources of the dashboard from npm are installed only for these targets; building Crane needs the committed bundle alone.
WEBUI = cd hack/webui && $(GO) run .
HAVE_WEB_SOURCES = [ -d web/node_modules/preact ] || { echo "skipped: packages of web/package-lock.json are not installed (Node.js 20 and npm are needed)"; exit 0; }

.PHONY: web
web: install-web-sources ## Bundle the dashboard's sources into web/dist, which is committed; needs Node.js 20 with npm for its sources
	$(WEBUI)

.PHONY: install-web
install-web: ## Install what the dashboard's bundle and tests need: packages from npm, Debian's chromium (root)
	@hack/webui/install.sh chromium

.PHONY: install-web-sources
install-web-sources:
	@hack/webui/install.sh

.PHONY: verify-web
verify-web: install-web-sources ## Fail when web/dist is not the bundle of web/src; skipped, with the reason, without Node.js 20
	@$(HAVE_WEB_SOURCES); $(WEBUI) -check

.PHONY: push-chart
push-chart: $(BIN)/helm ## Package the chart with VERSION and the digests of the images that `make images` pushed to PUSH, and push it as an OCI artifact to PUSH/charts
	GO=$(GO) HELM=$(BIN)/helm hack/push-chart.sh '$(VERSION)' '$(PUSH)' dist $(HELM_PUSH_FLAGS)

.PHONY: release
release: ## Write the files of a release of VERSION into dist/release: `crane` for linux, darwin and windows, SBOMs, checksums, krew manifest, notes
	hack/release.sh '$(VERSION)' dist/release

##@ Test

.PHONY: test
test: ## Unit, property and architecture tests; packages with goroutines with the race detector
	$(GO) test $(TEST_FLAGS) $(PURE)
	$(GO) test -race $(TEST_FLAGS) $(RACE)
	cd hack/images && $(GO) test ./...

.PHONY: test-rules
test-rules: $(BIN)/promtool ## Unit tests of the alerts in config/monitoring, with promtool
	$(BIN)/promtool check rules --lint-fatal config/monitoring/rules.yaml
	$(BIN)/promtool test rules test/monitoring/alerts.yaml

.PHONY: install-stores
install-stores: ## Install the Debian packages of stores that the integration tests compare with Prometheus (root)
	@hack/install-packages.sh victoria-metrics

.PHONY: mimir
mimir: $(BIN)/mimir ## Build Mimir, with which nightly tests compare the embedded Prometheus (8 minutes on 2 cores)

$(BIN)/mimir: hack/tools/mimir/go.mod
	cd hack/tools/mimir && $(GO) build -ldflags '-s -w' -o $@ github.com/grafana/mimir/cmd/mimir

KEDA := github.com/kedacore/keda/v2

.PHONY: keda
keda: ## Build KEDA, which a nightly test runs beside Crane
	cd hack/tools/keda && $(GO) build -ldflags '-s -w' -o $(BIN)/keda-operator $(KEDA)/cmd/operator && $(GO) build -ldflags '-s -w' -o $(BIN)/keda-adapter $(KEDA)/cmd/adapter
	install -D -m 644 -t $(BIN)/keda-crds $$(cd hack/tools/keda && $(GO) list -m -f '{{.Dir}}' $(KEDA))/config/crd/bases/*.yaml

.PHONY: stores
stores: $(STORES) ## Build Prometheus and Thanos, which the integration tests compare with the embedded Prometheus

.PHONY: test-integration
test-integration: $(BIN)/controlplane $(BIN)/crane-scheduler $(BIN)/helm $(BIN)/kubectl $(STORES) ## Tests against a real kube-apiserver, kube-scheduler and Prometheus engine, with the race detector
	CRANE_CONTROLPLANE=$(BIN)/controlplane CRANE_SCHEDULER=$(BIN)/crane-scheduler CRANE_STORES=$(BIN) $(GO) test -race $(TEST_FLAGS) -p 2 -timeout 30m $(ENGINE) ./test/integration/...
	$(GO) test $(TEST_FLAGS) $(SIMULATOR)
	cd hack/images && $(GO) test -count=1 -run TestPushedChart .

.PHONY: test-e2e
test-e2e: build $(BIN)/kubectl ## The playground end to end, as a user starts it
	CRANE_BIN=$(BIN) $(GO) test -count=1 -timeout 30m $$($(GO) list ./test/e2e/... | grep -v /test/e2e/node)

# How long `make chaos` injects faults, and the seed of a sequence to repeat.
DURATION ?= 1h
SEED ?=

.PHONY: chaos
chaos: build $(BIN)/kubectl ## Random faults of craned, metric-adapter, an agent and Prometheus for DURATION while invariants are checked; SEED=N repeats a sequence
	CRANE_BIN=$(BIN) CRANE_CHAOS_DURATION=$(DURATION) CRANE_CHAOS_SEED=$(SEED) $(GO) test -count=1 -v -timeout 12h -run '^TestChaos$$' ./test/e2e

# Number of hostile tenants of `make bench-tenants`.
TENANTS ?= 100
# Numbers of objects that they replace together each second, measured one after another.
TENANTS_RATES ?= 0,1,10

.PHONY: bench-tenants
bench-tenants: build $(BIN)/kubectl ## Print what the most expensive object of a tenant costs craned, and the delays of one tenant beside TENANTS hostile ones
	CRANE_BIN=$(BIN) CRANE_TENANTS=$(TENANTS) CRANE_TENANTS_RATES=$(TENANTS_RATES) $(GO) test -count=1 -v -timeout 2h -run '^TestTenants$$' ./test/e2e

.PHONY: test-rbac
test-rbac: $(BIN)/controlplane $(BIN)/crane-scheduler ## Run the integration tests with audit logs and fail for each verb of config/rbac that no component used
	@rm -rf .cache/audit && mkdir -p .cache/audit
	CRANE_AUDIT_DIR=$(CURDIR)/.cache/audit $(MAKE) test-integration
	CRANE_AUDIT_DIR=$(CURDIR)/.cache/audit $(GO) test -count=1 ./test/rbacusage

# Real nodes (docs/how-to/use-real-nodes.md) ------------------------------------------------------------------------------------
.PHONY: build-nodes
build-nodes: $(BIN)/controlplane ## Build what real nodes are made of: the kubelet, our part inside of them, and what their images hold
	@cd hack/nodes && $(GO) build -ldflags '$(KUBERNETES_LDFLAGS)' -o $(BIN)/ k8s.io/kubernetes/cmd/kubelet k8s.io/kubernetes/cmd/kube-proxy
	@cd hack/nodes/coredns && $(GO) build -ldflags '-s -w' -o $(BIN)/coredns .
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(BIN)/nodekit ./cmd/nodekit
	@# Linked statically and not built without C, as the Dockerfile does: that would compile most of Kubernetes' libraries a second time.
	@$(GO) build -ldflags '$(LDFLAGS) -linkmode external -extldflags -static' -o $(BIN)/static/ ./cmd/crane-agent ./test/e2e/node/agent/mortal
	@$(GO) build -ldflags '-s -w' -o $(BIN)/nodes ./cmd/nodes

# What CRI-O would link with libraries of C, which it needs not for this.
CRIO_TAGS := containers_image_ostree_stub containers_image_openpgp exclude_graphdriver_btrfs btrfs_noversion

.PHONY: build-crio
build-crio: ## Build CRI-O, which nodes have with ARGS="--runtime crio"; installs Debian's conmon (root)
	@hack/nodes/install.sh conmon
	@cd hack/nodes/crio && $(GO) build -trimpath -ldflags '-s -w' -tags '$(CRIO_TAGS)' -o $(BIN)/crio/ github.com/cri-o/cri-o/cmd/crio ./images
	@cd hack/nodes/crio && $(CC) -std=c99 -O2 -s -static -o $(BIN)/crio/pinns $$($(GO) list -m -f '{{.Dir}}' github.com/cri-o/cri-o)/pinns/src/*.c

.PHONY: nodes
nodes: build-nodes ## Start two real nodes on this machine (root, Linux); ARGS="--cgroup 2 --nodes 1" and so on
	@$(BIN)/nodes up $(ARGS)

.PHONY: build-cluster
build-cluster: build-nodes $(BIN)/helm
	@$(GO) build -ldflags '-s -w' -o $(BIN)/cluster ./cmd/cluster

# Images of this machine's architecture for its nodes, with the tag dev.
.PHONY: images-local
images-local:
	@$(MAKE) --no-print-directory images PLATFORMS=linux/$(shell $(GO) env GOARCH) VERSION=dev

.PHONY: cluster
cluster: build-cluster images-local ## Real nodes with Crane installed by its chart, Prometheus and sample workloads (root, Linux); ARGS="--once" stops after the first recommendations
	@$(BIN)/cluster $(ARGS)

.PHONY: load-images
load-images: build-cluster images-local ## Load Crane's images into the containerd of the real nodes that run on this machine (root)
	@$(BIN)/cluster --load-images

.PHONY: doctor-nodes
doctor-nodes: build-nodes ## Say what this machine lacks for real nodes
	@$(BIN)/nodes doctor $(ARGS)

.PHONY: install-nodes
install-nodes: ## Install the Debian packages that real nodes need (root)
	@hack/nodes/install.sh

.PHONY: test-nodes
test-nodes: build-nodes $(BIN)/crane-scheduler ## Tests on real nodes; skipped, with the reason, where the machine cannot. ARGS=-short leaves out emulated ones
	CRANE_BIN=$(BIN) $(GO) test -count=1 -p 1 -timeout 30m -v $(ARGS) ./test/e2e/node/...

.PHONY: test-cluster
test-cluster: build-cluster images-local ## Crane by its chart on real nodes: install, recommendations, upgrade, removal; skipped where the machine cannot
	CRANE_BIN=$(BIN) CRANE_IMAGES=$(CURDIR)/dist/images $(GO) test -count=1 -timeout 20m -v ./test/e2e/node/cluster

.PHONY: test-autoscaler
test-autoscaler: ## The taint of loaded nodes in Karpenter's scheduling simulation, which is built from its module
	cd hack/autoscaler && $(GO) test -vet=off ./...

.PHONY: test-web
test-web: install-web ## Tests of the dashboard: types, units, and pages in chromium; skipped, with the reason, where Node.js 20 or chromium is missing
	@$(HAVE_WEB_SOURCES); GO=$(GO) CRANE_BIN=$(BIN) CRANE_SCREENSHOTS=$${CRANE_SCREENSHOTS:-$(BIN)/dashboard-screenshots} web/test/run.sh $(ARGS)

.PHONY: test-agent
test-agent: build-nodes $(BIN)/crane-scheduler ## The agent on real nodes alone, out of test-nodes; ARGS=-short leaves out emulated ones
	CRANE_BIN=$(BIN) $(GO) test -count=1 -timeout 30m -v $(ARGS) ./test/e2e/node/agent

.PHONY: bench-nodes
bench-nodes: build-nodes ## Print the figures of real nodes: start, stop, idle cost, failures in 20 rounds
	@$(BIN)/nodes bench $(ARGS)
# --------------------------------------------------------------------------------------------------------------------

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME
	@hack/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: build ## Print the figures: histogram, right-sizing, history of 10,000 containers, playground
	@hack/bench.sh

.PHONY: bench-nodeload
bench-nodeload: $(BIN)/craned $(BIN)/controlplane ## Print queries, patches, CPU and memory of node loads on 5,000 nodes: an hour of decisions, and 8 minutes on an API server
	$(GO) test -run '^$$' -bench Hour5000Nodes -benchtime 3x ./internal/nodeload/controller
	$(GO) run ./test/bench/nodeload -for 8m

.PHONY: bench-craned
bench-craned: $(BIN)/craned $(BIN)/controlplane ## Print a pass of recommendations over 20,000 workloads, ten quiet minutes after it, and the heap after roll-outs; ARGS="-workloads 500 -namespaces 20" for less
	@$(GO) run ./test/bench/craned $(ARGS)

.PHONY: bench-requests
bench-requests: build ## Print what Crane recommends for its own processes beside the requests of the chart, after a quarter of an hour of 1,000 workloads; fails if the chart requests less; ARGS="-workloads 60 -nodes 12" for less
	@$(GO) run ./test/bench/requests -bin $(BIN) $(ARGS)

.PHONY: bench-autoscaling
bench-autoscaling: $(BIN)/craned $(BIN)/controlplane ## Print what craned writes and takes with 5,000 EffectiveHPAs while nothing changes, for ten minutes; ARGS="-scalers 500 -quiet 1m" for less
	@$(GO) run ./test/bench/autoscaling $(ARGS)

.PHONY: bench-metric-adapter
bench-metric-adapter: $(BIN)/metric-adapter $(BIN)/controlplane ## Print the metric adapter's latency, memory and requests to the API server with 5,000 autoscalers; ARGS="-autoscalers 500 -namespaces 10" for less
	@$(GO) run ./test/bench/metricadapter $(ARGS)

.PHONY: bench-agent
bench-agent: build-nodes ## Print what a tick of the agent takes at 110 pods, on a recorded tree and on a real node, and what it saves a pod beside a hog
	$(GO) test -run '^$$' -bench 'Tick110' -benchmem ./internal/agent/signals
	CRANE_BIN=$(BIN) $(GO) test -run '^$$' -bench . -benchtime 1x -timeout 30m ./test/e2e/node/agent

.PHONY: bench-scheduler
bench-scheduler: $(BIN)/crane-scheduler ## Print how evenly nodes are used by each way to schedule, and what becomes of a burst; ARGS="--nodes 300 --seeds 3" for less
	@hack/bench-scheduler.sh $(ARGS)

.PHONY: bench-throughput
bench-throughput: $(BIN)/controlplane $(BIN)/crane-scheduler ## Print pods a second with and without Crane's plugins on a real API server
	@CRANE_CONTROLPLANE=$(BIN)/controlplane CRANE_SCHEDULER=$(BIN)/crane-scheduler $(GO) test -run '^$$' -bench Throughput -benchtime 1x -timeout 4h ./test/bench/scheduler

.PHONY: bench-forecast
bench-forecast: ## Print the accuracy table of the forecasters on ../shared/traces
	@hack/bench-forecast.sh

.PHONY: bench-decisions
bench-decisions: $(BIN)/crane ## Print the scores of forecasts, sizing and scaling ahead on series of each family in ../shared
	@$(GO) test -run '^$$' -bench LeaveOneFamilyOut -benchtime 1x -timeout 60m ./pkg/forecast/auto
	@$(GO) test -run '^$$' -bench 'Families$$|Frontier|LeaveOneFamilyOut' -benchtime 1x -timeout 60m ./pkg/rightsize/requestbacktest
	@$(GO) test -run '^$$' -bench LeaveOneFamilyOut -benchtime 1x -timeout 60m ./pkg/scaling/replay
	@hack/bench-scaling.sh

.PHONY: nightly
nightly: build $(BIN)/kubectl ## What does not fit into CI: all tests with the race detector, unused rights, Karpenter's simulation, emulated machines, CRI-O, Crane by its chart on real nodes, and fuzzing
	$(GO) test -race $(TEST_FLAGS) -timeout 60m ./pkg/... ./internal/...
	CRANE_NIGHTLY=1 CRANE_CONTROLPLANE=$(BIN)/controlplane $(GO) test $(TEST_FLAGS) -count=1 -timeout 60m -run 'TestKillAtEveryWrite|TestUndoFromEachStep|TestAway|TestSecondCluster' ./test/integration/migrate
	CRANE_NIGHTLY=1 CRANE_BIN=$(BIN) $(GO) test -count=1 -timeout 30m -run 'TestDashboardsHaveData|TestAlertsAreQuiet' ./test/e2e
	CRANE_NIGHTLY=1 CRANE_CLI=$(BIN)/crane CRANE_CONTROLPLANE=$(BIN)/controlplane $(GO) test -count=1 -timeout 20m -v -run TestManyRecommendations ./test/integration/dashboard
	$(MAKE) test-autoscaler keda mimir
	CRANE_NIGHTLY=1 CRANE_STORES=$(BIN) CRANE_CONTROLPLANE=$(BIN)/controlplane $(GO) test -count=1 -timeout 20m -v -run 'TestKEDA|Mimir' ./internal/metrics/prometheus ./test/integration/metricadapter ./test/integration/prediction
	$(MAKE) install-nodes build-crio test-nodes test-cluster
	CRANE_NIGHTLY=1 $(GO) test -count=1 -timeout 60m ./test/release
	$(MAKE) test-rbac
	$(MAKE) bench-requests
	$(MAKE) images
	cd hack/images && CRANE_REPRODUCIBLE='$(IMAGES)' $(GO) test -count=1 -timeout 90m -run 'TestReproducible|TestDockerfile' .
	$(MAKE) fuzz FUZZTIME=1m
	$(MAKE) vulncheck audit-web

##@ Check

$(BIN)/govulncheck: hack/go.mod
	cd hack && $(GO) build -o $@ golang.org/x/vuln/cmd/govulncheck

# URL of the database of vulnerabilities; a mirror or a copy (file:///...) where vuln.go.dev cannot be reached.
VULNDB ?= https://vuln.go.dev

.PHONY: vulncheck
vulncheck: $(BIN)/govulncheck ## Report known vulnerabilities in code that Crane calls; VULNDB=file:///... for a copy of the database
	@hack/vulncheck.sh $(BIN)/govulncheck '$(VULNDB)'

.PHONY: audit-web
audit-web: ## Report known vulnerabilities of the packages of npm in the dashboard's bundle; needs npm and its registry
	cd web && npm audit --package-lock-only --omit=dev

.PHONY: lint
lint: $(BIN)/golangci-lint ## Run the linters
	GOLANGCI_LINT_CACHE=$(CURDIR)/.cache/golangci-lint $(BIN)/golangci-lint run ./...

.PHONY: generate
generate: $(BIN)/controller-gen ## Regenerate deepcopy functions, CRDs, protobuf types and the reference pages of docs/
	hack/generate.sh

.PHONY: verify
verify: generate ## Fail when generated files or go.mod are not current, modules cannot be listed, or a file is not formatted
	$(GO) mod tidy -diff
	@for file in $$(git ls-files go.mod '*/go.mod'); do (cd "$$(dirname "$$file")" && $(GO) list -m all >/dev/null) || { echo "$$file: go list -m all fails; exclude the versions that do not exist"; exit 1; }; done
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo "run gofmt -w on these"; exit 1; }
	@git diff --exit-code -- api charts config docs/reference internal/metrics/grpc || { echo "generated files are not current: run 'make generate' and commit"; exit 1; }
	@test -z "$$(git ls-files --others --exclude-standard -- api charts config docs/reference internal/metrics/grpc)" || { git ls-files --others --exclude-standard -- api charts config docs/reference internal/metrics/grpc; echo "generated files are not committed"; exit 1; }
	$(GO) test -count=1 ./test/docs ./test/apiusage
	@$(MAKE) --no-print-directory verify-web

.PHONY: clean
clean: ## Remove what was built
	rm -rf $(BIN) .cache

.PHONY: help
help: ## Print this
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z][a-z0-9-]*:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
