// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"

	"crane.io/crane/pkg/series"
)

// WorkloadsRequest asks for the use of workloads of one namespace and one kind.
type WorkloadsRequest struct {
	Resource  Resource
	Namespace string
	// Kind is that of the workload: Deployment, StatefulSet, Pod, a custom kind, and so on.
	Kind   string
	Names  []string
	Window Window
}

// NodesRequest asks for the use of nodes: everything that runs there, the system included.
type NodesRequest struct {
	Resource Resource
	Names    []string
	Window   Window
}

// AggregateReader reads sums that the source makes itself, so that one query serves several workloads and the answer
// is as small as what is asked for. Names without data are absent from the result. The value at t stands for the use in
// [t, t+Step), as with UsageReader.
type AggregateReader interface {
	// WorkloadUsage returns the use of all containers of each workload, by the name of the workload.
	WorkloadUsage(ctx context.Context, req WorkloadsRequest) (map[string]series.Series, error)
	// NodeUsage returns the use of each node, by its name.
	NodeUsage(ctx context.Context, req NodesRequest) (map[string]series.Series, error)
}
