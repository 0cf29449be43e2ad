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

MODULE := crane.io/crane

# Unit tests. The domain in pkg/ has no goroutines (pkg/nodeload apart) and runs without the race detector, and so do the migration,
# which has none either, and the controller whose tests compute a hundred thousand cases beside the HPA; of the other packages those
# with tests are compiled with it. `make nightly` compiles all with it.
SEQUENTIAL := $(addprefix $(MODULE)/internal/,migrate autoscaling/controller/ehpa)
PURE := ./pkg/... ./test/architecture ./test/controlplanetest ./test/hostrecording ./test/monitoring ./test/release $(SEQUENTIAL)
RACE = ./pkg/nodeload $(filter-out $(ENGINE) $(SIMULATOR) $(SEQUENTIAL),$(shell $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' \
	./api/... ./config/... ./internal/... ./web | grep -v -e '/internal/testbed/controlplane/server$$' -e '/internal/scheduler/app$$'))
# Packages whose tests link a Prometheus server or an aggregated API server: compiling these takes longer than all unit
# tests, so they run with the integration tests, which link the same.
ENGINE = $(MODULE)/internal/testbed/promserver $(patsubst %.test,%,$(filter %.test,$(shell $(GO) list -test \
	-f '{{range .Deps}}{{if or (eq . "$(MODULE)/internal/testbed/promserver") (eq . "k8s.io/apiserver/pkg/server")}}{{$$.ImportPath}} {{end}}{{end}}' ./internal/...)))
# Packages whose tests link kube-scheduler. They have one goroutine and run without the race detector.
SIMULATOR := $(addprefix $(MODULE)/internal/scheduler/,simulate simulate/engine)
# Tests are vetted by make lint. Without symbol tables test binaries link faster.
TEST_FLAGS := -vet=off -ldflags='-s -w'
# Tests of the agent sync files to the disk thousands of times. What go test links stays on the disk.
IN_MEMORY := GOTMPDIR="$${GOTMPDIR:-$${TMPDIR:-/tmp}}" TMPDIR="$$(hack/fast-tmp.sh)"

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

##@ Test

.PHONY: test
test: ## Unit, property and architecture tests
	$(IN_MEMORY) $(GO) test $(TEST_FLAGS) $(PURE) $(RACE)
	cd hack/images && $(GO) test ./...

.PHONY: test-race
test-race: ## The tests of `make test`, with the race detector in packages that have goroutines
	$(IN_MEMORY) $(GO) test $(TEST_FLAGS) $(PURE)
	$(IN_MEMORY) $(GO) test -race $(TEST_FLAGS) $(RACE)
	cd hack/images && $(GO) test ./...

.PHONY: test-rules
test-rules: $(BIN)/promtool ## Unit tests of the alerts in config/monitoring, with promtool
	$(BIN)/promtool check rules --lint-fatal config/monitoring/rules.yaml
	$(BIN)/promtool test rules test/monitoring/alerts.yaml

.PHONY: install-stores
install-stores: ## Install the Debian packages of stores that the integration tests compare with Prometheus (root)
	@hack/install-packages.sh victoria-metrics

.PHONY: stores
stores: $(STORES) ## Build Prometheus and Thanos, which the integration tests compare with the embedded Prometheus

# -race in `make nightly`; in CI it would double the time.
DETECTOR ?=
# Integration tests wait most of the time, for intervals and for processes: a core is a quarter busy with one package. The longest packages
# start first, so that none of them is alone at the end.
PACKAGES_AT_ONCE ?= 4
LONGEST := $(addprefix ./test/integration/,adoption migrate prediction craned)

.PHONY: test-integration
test-integration: $(addprefix $(BIN)/,controlplane craned crane-agent metric-adapter crane-scheduler) $(BIN)/helm $(BIN)/kubectl $(STORES) ## Tests against a real kube-apiserver, kube-scheduler and Prometheus engine; DETECTOR=-race adds the race detector
	CRANE_BIN=$(BIN) CRANE_CONTROLPLANE=$(BIN)/controlplane CRANE_SCHEDULER=$(BIN)/crane-scheduler CRANE_STORES=$(BIN) $(GO) test $(DETECTOR) $(TEST_FLAGS) -p $(PACKAGES_AT_ONCE) -timeout 30m $(LONGEST) $(ENGINE) ./test/integration/...
	$(GO) test $(TEST_FLAGS) ./test/dirty
	$(GO) test $(TEST_FLAGS) $(SIMULATOR)
	cd hack/images && $(GO) test -count=1 -run TestPushedChart .

.PHONY: test-e2e
test-e2e: build $(BIN)/kubectl ## The playground end to end, as a user starts it
	CRANE_BIN=$(BIN) $(GO) test -count=1 -timeout 30m $$($(GO) list ./test/e2e/... | grep -v /test/e2e/node)

.PHONY: test-web
test-web: install-web ## Tests of the dashboard: types, units, and pages in chromium; skipped, with the reason, where Node.js 20 or chromium is missing
	@$(HAVE_WEB_SOURCES); GO=$(GO) CRANE_BIN=$(BIN) CRANE_SCREENSHOTS=$${CRANE_SCREENSHOTS:-$(BIN)/dashboard-screenshots} web/test/run.sh $(ARGS)

##@ Check

# Outside of the clone, so that the next clone at the same path finds it. One folder for each path, because a cached issue has the path of the
# file in which it was found, and the key of the cache does not.
LINT_CACHE = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/crane-golangci-lint$(CURDIR)

.PHONY: lint
lint: $(BIN)/golangci-lint ## Run the linters
	GOLANGCI_LINT_CACHE=$(LINT_CACHE) $(BIN)/golangci-lint run --allow-parallel-runners ./...

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
	rm -rf $(BIN) .cache $(LINT_CACHE)

.PHONY: ci
ci: ## Run what every change must pass
	.ci/run

include mk/release.mk mk/nodes.mk mk/bench.mk mk/nightly.mk

# print-targets FILES prints the targets of makefiles that have a description.
print-targets = @awk 'BEGIN {FS = ":.*\#\# "} /^\#\#@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z][a-z0-9-]*:.*\#\# / {printf "  make %-18s %s\n", $$1, $$2}' $(1)

.PHONY: help
help: ## Print the targets that users and contributors need
	$(call print-targets,Makefile)
	@printf '\nBenchmarks, real nodes, nightly tests and releases: make help-all\n'

.PHONY: help-all
help-all: ## Print all targets
	$(call print-targets,$(MAKEFILE_LIST))
