// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"

	"crane.io/crane/pkg/series"
)

// WorkloadsRequest selects workloads of one namespace and kind.
type WorkloadsRequest struct {
	Resource  Resource
	Namespace string
	// Kind is the kind of the workload: Deployment, StatefulSet, Pod, a custom kind, and so on.
	Kind   string
	Names  []string
	Window Window
}

// NodesRequest selects nodes. Their usage includes everything that runs there, such as system processes.
type NodesRequest struct {
	Resource Resource
	Names    []string
	Window   Window
}

// AggregateReader reads usage that the source sums itself, so that one query serves several workloads. Names without data are absent from
// the result. The value at t covers [t, t+Step), as with UsageReader.
type AggregateReader interface {
	// WorkloadUsage returns the usage of all containers of each workload, by the name of the workload.
	WorkloadUsage(ctx context.Context, req WorkloadsRequest) (map[string]series.Series, error)
	// NodeUsage returns the usage of each node, by its name.
	NodeUsage(ctx context.Context, req NodesRequest) (map[string]series.Series, error)
}
