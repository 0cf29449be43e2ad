// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/cost"
)

// allocatedCosts are the costs of the nodes, allocated to their pods.
type allocatedCosts struct {
	cost.Allocation

	now time.Time
	// window is the window of the mean usage before now.
	window time.Duration
	book   *cost.PriceBook
	// withUsage is set if usage was read.
	withUsage bool
	sources   sources
}

// allocator allocates the costs of a cluster.
type allocator struct {
	// prometheus is optional: without a server, costs are allocated by requests alone.
	prometheus *prometheusFlags
	kubernetes *kubernetesFlags
	// window is the window of the mean usage.
	window time.Duration
	prices *cost.PriceBook
	// output gets the progress and the warnings.
	output io.Writer
}

// allocateCluster reads the cluster and the usage of its pods, and allocates the cost.
func (a *allocator) allocateCluster(ctx context.Context) (*allocatedCosts, error) {
	report := &allocatedCosts{
		now:    time.Now(),
		window: a.window,
		book:   a.prices,
	}

	source, err := a.openOptionalPrometheus(ctx)
	if err != nil {
		return nil, err
	}

	if source == nil {
		cluster, err := a.kubernetes.listCluster(ctx, nil)
		if errors.Is(err, errNoKubeconfig) {
			return nil, fmt.Errorf("%w: nodes and pods are read from the Kubernetes API, or from kube-state-metrics in Prometheus (--prometheus)", err)
		}
		if err != nil {
			return nil, err
		}

		report.sources = sources{workloads: a.kubernetes.serverName(), nodes: a.kubernetes.serverName()}
		report.Allocation, err = allocateNodes(a.prices, cluster, func(string, string) (cost.Amounts, bool) { return cost.Amounts{}, false })
		return report, err
	}

	progress := newProgress(a.output, "listing nodes and pods", source.Stats)
	defer progress.stop()

	state := newClusterState(a.kubernetes, nil, source, a.prometheus.serverName(), func(text string) { fmt.Fprintln(progress, text) })
	cluster, err := state.cluster(ctx, a.prices.LabelKeys())
	if err != nil {
		return nil, err
	}

	progress.setPhase("reading the usage of pods")
	end := report.now.Truncate(time.Minute)
	use, err := profile.ReadPodUsage(ctx, source.Capabilities().Usage, nil, end.Add(-a.window), end)
	if err != nil {
		return nil, err
	}

	report.withUsage = true
	report.sources = state.reportSources()
	report.Allocation, err = allocateNodes(a.prices, cluster, use.Mean)

	return report, err
}

// openOptionalPrometheus opens the Prometheus server of the flags, or one discovered in the cluster. It returns nil
// if none is discovered, because costs by request do not require usage.
func (a *allocator) openOptionalPrometheus(ctx context.Context) (*prometheus.Source, error) {
	named := a.prometheus.address != "" || a.prometheus.service != ""
	err := a.prometheus.discoverServer(ctx, a.kubernetes, func(text string) { fmt.Fprintln(a.output, text) })
	switch {
	case err == nil:
		return a.prometheus.open()
	case named || ctx.Err() != nil:
		return nil, err
	case !errors.Is(err, errNoKubeconfig):
		fmt.Fprintf(a.output, "Warning: %v; usage is not counted\n", err)
	}

	return nil, nil
}

func allocateNodes(book *cost.PriceBook, cluster workload.Cluster, use func(namespace, pod string) (cost.Amounts, bool)) (cost.Allocation, error) {
	tariff, err := cost.NewTariff(book, cluster.Nodes)
	if err != nil {
		return cost.Allocation{}, fmt.Errorf("failed to price the nodes: %w", err)
	}

	return cost.Allocate(tariff, cluster.CostPods(use)), nil
}
