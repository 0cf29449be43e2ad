// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/prometheus"
)

// Sources other than the Kubernetes API.
const (
	sourceMetrics = "kube-state-metrics"
	sourceNone    = "nowhere"
)

// sources names the data sources of a report.
type sources struct {
	// history, workloads (with their requests and limits), nodes and autoscalers are the sources of each kind of
	// data.
	history, workloads, nodes, autoscalers string
	// missing lists missing metrics with their impact.
	missing []string
	// requestsUnknown is set if no current request is known.
	requestsUnknown bool
}

// clusterState reads workloads, nodes and autoscalers from the Kubernetes API if it is reachable, else from
// kube-state-metrics in Prometheus.
type clusterState struct {
	kubernetes  *kubernetesFlags
	namespaces  []string
	source      *prometheus.Source
	metricState *prometheus.ClusterState
	// note prints a line for the user.
	note    func(string)
	sources sources
}

func newClusterState(k *kubernetesFlags, namespaces []string, source *prometheus.Source, server string, note func(string)) *clusterState {
	return &clusterState{
		kubernetes:  k,
		namespaces:  namespaces,
		source:      source,
		metricState: source.ClusterState(namespaces),
		note:        note,
		sources:     sources{history: server},
	}
}

// reportSources returns the sources of the data that was read, with missing metrics.
func (e *clusterState) reportSources() sources {
	out := e.sources
	out.missing = append(slices.Clone(out.missing), e.metricState.MissingMetrics()...)
	return out
}

// workloads lists the workloads. If the user selected a cluster, failing to reach it is an error; a cluster of the
// default kubeconfig falls back to Prometheus.
func (e *clusterState) workloads(ctx context.Context) ([]workload.Workload, error) {
	found, err := e.kubernetes.listWorkloads(ctx, e.namespaces)
	switch {
	case err == nil:
		e.sources.workloads = e.kubernetes.serverName()
		return found, nil
	case e.kubernetes.explicit() || ctx.Err() != nil:
		return nil, err
	case !errors.Is(err, errNoKubeconfig):
		e.note(fmt.Sprintf("Warning: %v; reading workloads from Prometheus", err))
	}

	if found, err = e.metricState.Workloads(ctx); err != nil {
		return nil, err
	}

	e.sources.workloads, e.sources.requestsUnknown = sourceMetrics, !e.metricState.HasRequests()
	return found, nil
}

// constraints returns the largest node and the autoscalers. Read errors are warnings, because nothing is applied.
func (e *clusterState) constraints(ctx context.Context) (workload.Constraints, error) {
	out, err := e.kubernetes.listConstraints(ctx, e.namespaces)
	switch {
	case err == nil:
		e.sources.nodes, e.sources.autoscalers = e.kubernetes.serverName(), e.kubernetes.serverName()
		return out, nil
	case ctx.Err() != nil:
		return out, err

	case e.kubernetes.personal():
		e.note(fmt.Sprintf("Warning: %v; recommendations may exceed the largest node and ignore autoscalers", err))
		e.sources.nodes = sourceNone
		e.sources.autoscalers = sourceNone

		return workload.Constraints{}, nil

	case !errors.Is(err, errNoKubeconfig):
		e.note(fmt.Sprintf("Warning: %v; reading nodes and autoscalers from Prometheus", err))
	}

	e.sources.nodes = sourceNone
	e.sources.autoscalers = sourceNone
	if out, err = e.metricConstraints(ctx); err != nil {
		if ctx.Err() != nil {
			return out, err
		}

		e.note(fmt.Sprintf("Warning: %v; recommendations may exceed the largest node and ignore autoscalers", err))
	}

	return out, nil
}

// metricConstraints returns the constraints in the metrics of kube-state-metrics.
func (e *clusterState) metricConstraints(ctx context.Context) (workload.Constraints, error) {
	scaled, err := e.metricState.Autoscalers(ctx)
	if err != nil {
		return workload.Constraints{}, err
	}

	out, err := autoscalerConstraints(ctx, scaled)
	if err != nil {
		return workload.Constraints{}, err
	}

	e.sources.autoscalers = sourceMetrics
	largest, err := e.source.Constraints(ctx)
	if err != nil {
		return out, err
	}

	out.MaxCPU, out.MaxMemory = largest.MaxCPU, largest.MaxMemory
	if out.Nodes, err = e.metricState.NodeGroups(ctx); err != nil {
		return out, err
	}

	if out.MaxCPU == 0 || out.MaxMemory == 0 {
		e.sources.missing = append(e.sources.missing, "kube_node_status_allocatable: the largest node is unknown, so a recommendation may exceed it")
	} else {
		e.sources.nodes = sourceMetrics
	}

	return out, nil
}

// cluster lists nodes with the given label keys, and pods. If the user selected a cluster, failing to reach it is an
// error.
func (e *clusterState) cluster(ctx context.Context, keys []string) (workload.Cluster, error) {
	out, err := e.kubernetes.listCluster(ctx, e.namespaces)
	if e.sources.workloads == "" && err == nil {
		e.sources.workloads = e.kubernetes.serverName()
	}

	switch {
	case err == nil:
		e.sources.nodes = e.kubernetes.serverName()
		return out, nil
	case ctx.Err() != nil || e.kubernetes.personal():
		return out, err
	case !errors.Is(err, errNoKubeconfig):
		e.note(fmt.Sprintf("Warning: %v; reading nodes from Prometheus", err))
	}

	if out, err = e.metricState.Cluster(ctx, keys); err != nil {
		return out, err
	}

	e.sources.nodes = sourceMetrics
	if len(out.Nodes) == 0 {
		e.sources.nodes = sourceNone
	}
	if e.sources.workloads == "" {
		e.sources.workloads = sourceMetrics
	}

	return out, nil
}

// emptyNamespaces returns the reason for each requested namespace without workload.
func (e *clusterState) emptyNamespaces(ctx context.Context, found []workload.Workload) []string {
	var out []string
	for _, ns := range e.namespaces {
		if slices.ContainsFunc(found, func(w workload.Workload) bool { return w.Namespace == ns }) {
			continue
		}

		if e.sources.workloads == sourceMetrics {
			out = append(out, fmt.Sprintf("%s reports no pod in namespace %s", sourceMetrics, ns))
			continue
		}

		if missing := checkNamespace(ctx, e.kubernetes, ns); missing != nil {
			out = append(out, missing.Error())
			continue
		}

		out = append(out, fmt.Sprintf("namespace %s has no workload", ns))
	}

	return out
}

// lines describes the sources if they are not the Kubernetes API only.
func (s sources) lines() []string {
	var out []string
	if s.workloads == sourceMetrics || s.nodes == sourceMetrics || s.autoscalers == sourceMetrics {
		var parts []string
		for _, part := range []struct{ data, source string }{{"workloads with their requests and limits", s.workloads}, {"nodes", s.nodes}, {"autoscalers", s.autoscalers}} {
			if part.source != "" {
				parts = append(parts, part.data+" from "+part.source)
			}
		}

		out = append(out, "Sources: "+strings.Join(parts, "; ")+".")
	}

	for _, m := range s.missing {
		out = append(out, "Missing "+m+".")
	}

	return out
}

// checkNamespace returns an error if a namespace does not exist; nil if it exists or cannot be read.
func checkNamespace(ctx context.Context, k *kubernetesFlags, name string) error {
	lister, _, err := k.lister()
	if err != nil {
		return nil //nolint:nilerr // whether it exists is unknown
	}

	return missingNamespace(ctx, lister.Sources(corev1.SchemeGroupVersion.WithKind("Namespace")).Reader, name)
}
