# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Images, chart, SBOMs, the files of a release, and known vulnerabilities.

##@ Release

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

.PHONY: push-chart
push-chart: $(BIN)/helm ## Package the chart with VERSION and the digests of the images that `make images` pushed to PUSH, and push it as an OCI artifact to PUSH/charts
	GO=$(GO) HELM=$(BIN)/helm hack/push-chart.sh '$(VERSION)' '$(PUSH)' dist $(HELM_PUSH_FLAGS)

.PHONY: release
release: ## Write the files of a release of VERSION into dist/release: `crane` for linux, darwin and windows, SBOMs, checksums, krew manifest, notes
	hack/release.sh '$(VERSION)' dist/release

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
