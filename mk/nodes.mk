# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Real nodes and a cluster of them on this machine: docs/how-to/use-real-nodes.md.

##@ Real nodes

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

.PHONY: test-agent
test-agent: build-nodes $(BIN)/crane-scheduler ## The agent on real nodes alone, out of test-nodes; ARGS=-short leaves out emulated ones
	CRANE_BIN=$(BIN) $(GO) test -count=1 -timeout 30m -v $(ARGS) ./test/e2e/node/agent
