# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Benchmarks. make bench prints the figures of docs/reference/performance.md.

##@ Benchmarks

# Number of hostile tenants of `make bench-tenants`.
TENANTS ?= 100
# Numbers of objects that they replace together each second, measured one after another.
TENANTS_RATES ?= 0,1,10

.PHONY: bench-tenants
bench-tenants: build $(BIN)/kubectl ## Print what the most expensive object of a tenant costs craned, and the delays of one tenant beside TENANTS hostile ones
	CRANE_BIN=$(BIN) CRANE_TENANTS=$(TENANTS) CRANE_TENANTS_RATES=$(TENANTS_RATES) $(GO) test -count=1 -v -timeout 2h -run '^TestTenants$$' ./test/e2e

.PHONY: bench-nodes
bench-nodes: build-nodes ## Print the figures of real nodes: start, stop, idle cost, failures in 20 rounds
	@$(BIN)/nodes bench $(ARGS)

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
