// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocation allocates the prices of the nodes of a cluster to its pods.
package allocation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/clusterstate"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/cost"
)

// Report are the costs of the nodes, allocated to their pods.
type Report struct {
	cost.Allocation

	Now time.Time
	// Window is the window of the mean usage before now.
	Window time.Duration
	Book   *cost.PriceBook
	// WithUsage is set if usage was read.
	WithUsage bool
	Sources   clusterstate.Sources
}

// Allocator allocates the costs of a cluster.
type Allocator struct {
	// Prometheus is optional: without a server, costs are allocated by requests alone.
	Prometheus *historyserver.Server
	Kubernetes *clusteraccess.Access
	// Window is the window of the mean usage.
	Window time.Duration
	Prices *cost.PriceBook
	// Output gets the progress and the warnings.
	Output io.Writer
}

// Allocate reads the cluster and the usage of its pods, and allocates the cost.
func (a *Allocator) Allocate(ctx context.Context) (*Report, error) {
	report := &Report{
		Now:    time.Now(),
		Window: a.Window,
		Book:   a.Prices,
	}

	source, err := a.openOptionalPrometheus(ctx)
	if err != nil {
		return nil, err
	}

	// Costs by request need no history.
	if source == nil {
		cluster, err := a.Kubernetes.ListCluster(ctx, nil)
		if errors.Is(err, clusteraccess.ErrNoKubeconfig) {
			return nil, fmt.Errorf("%w: nodes and pods are read from the Kubernetes API, or from kube-state-metrics in Prometheus (--prometheus)", err)
		}
		if err != nil {
			return nil, err
		}

		report.Sources = clusterstate.Sources{Workloads: a.Kubernetes.ServerName(), Nodes: a.Kubernetes.ServerName()}
		report.Allocation, err = allocateNodes(a.Prices, cluster, func(string, string) (cost.Amounts, bool) { return cost.Amounts{}, false })
		return report, err
	}

	progress := progressline.New(a.Output, "listing nodes and pods", source.Stats)
	defer progress.Stop()

	state := clusterstate.New(a.Kubernetes, nil, source, a.Prometheus.Name(), func(text string) { termtext.Fprintln(progress, text) })
	cluster, err := state.Cluster(ctx, a.Prices.LabelKeys())
	if err != nil {
		return nil, err
	}

	progress.SetPhase("reading the usage of pods")
	end := report.Now.Truncate(time.Minute)
	readers := source.Capabilities()
	use, err := profile.ReadPodUsage(ctx, readers.Usage, readers.Capacity, nil, end.Add(-a.Window), end)
	if err != nil {
		return nil, err
	}

	report.WithUsage = true
	report.Sources = state.ReportSources()
	report.Allocation, err = allocateNodes(a.Prices, cluster, use.Mean)

	return report, err
}

// openOptionalPrometheus opens the Prometheus server of the flags, or one discovered in the cluster. It returns nil
// if none is discovered, because costs by request do not require usage.
func (a *Allocator) openOptionalPrometheus(ctx context.Context) (*prometheus.Source, error) {
	named := a.Prometheus.Address != "" || a.Prometheus.Service != ""
	err := a.Prometheus.Discover(ctx, a.Kubernetes, func(text string) { termtext.Fprintln(a.Output, text) })
	switch {
	case err == nil:
		return a.Prometheus.Open()
	case named || ctx.Err() != nil:
		return nil, err
	case !errors.Is(err, clusteraccess.ErrNoKubeconfig):
		termtext.Fprintf(a.Output, "Warning: %v; usage is not counted\n", err)
	}

	return nil, nil
}

func allocateNodes(book *cost.PriceBook, cluster workload.Cluster, use func(namespace, pod string) (cost.Amounts, bool)) (cost.Allocation, error) {
	tariff, err := cost.NewTariff(book, cluster.Nodes)
	if err != nil {
		return cost.Allocation{}, fmt.Errorf("pricing the nodes: %w", err)
	}

	return cost.Allocate(tariff, cluster.CostPods(use)), nil
}
