// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterstate reads workloads, nodes and autoscalers from the Kubernetes API, or from kube-state-metrics
// in Prometheus if there is no API server.
package clusterstate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/kube/workloadname"
	"crane.io/crane/internal/metrics/prometheus"
)

// Sources other than the Kubernetes API.
const (
	SourceMetrics = "kube-state-metrics"
	sourceNone    = "nowhere"
)

// Sources names the data sources of a report.
type Sources struct {
	// history, workloads (with their requests and limits), nodes and autoscalers are the sources of each kind of
	// data.
	History, Workloads, Nodes, Autoscalers string
	// Missing lists missing metrics with their impact.
	Missing []string
	// RequestsUnknown is set if no current request is known.
	RequestsUnknown bool
}

// State reads workloads, nodes and autoscalers from the Kubernetes API if it is reachable, else from
// kube-state-metrics in Prometheus.
type State struct {
	Access      *clusteraccess.Access
	namespaces  []string
	source      *prometheus.Source
	metricState *prometheus.ClusterState
	// Note prints a line for the user.
	Note    func(string)
	Sources Sources
}

// New returns the state of the namespaces; all without any. server is the name of the source in the report.
func New(k *clusteraccess.Access, namespaces []string, source *prometheus.Source, server string, note func(string)) *State {
	return &State{
		Access:      k,
		namespaces:  namespaces,
		source:      source,
		metricState: source.ClusterState(namespaces),
		Note:        note,
		Sources:     Sources{History: server},
	}
}

// ReportSources returns the sources of the data that was read, with missing metrics.
func (s *State) ReportSources() Sources {
	out := s.Sources
	out.Missing = append(slices.Clone(out.Missing), s.metricState.MissingMetrics()...)
	return out
}

// Workloads lists the workloads. If the user selected a cluster, failing to reach it is an error; a cluster of the
// default kubeconfig falls back to Prometheus.
func (s *State) Workloads(ctx context.Context) ([]workload.Workload, error) {
	found, err := s.Access.ListWorkloads(ctx, s.namespaces, func(err error) {
		s.Note(fmt.Sprintf("Warning: %v; a request that a LimitRange sets by default counts as not set", err))
	})
	switch {
	case err == nil:
		s.Sources.Workloads = s.Access.ServerName()
		return found, nil
	case s.Access.Explicit() || ctx.Err() != nil:
		return nil, err
	case !errors.Is(err, clusteraccess.ErrNoKubeconfig):
		s.Note(fmt.Sprintf("Warning: %v; reading workloads from Prometheus", err))
	}

	if found, err = s.metricState.Workloads(ctx); err != nil {
		return nil, err
	}

	s.Sources.Workloads = SourceMetrics
	s.Sources.RequestsUnknown = !s.metricState.HasRequests()
	return found, nil
}

// Constraints returns the largest node and the autoscalers. Read errors are warnings, because nothing is applied.
func (s *State) Constraints(ctx context.Context) (workload.Constraints, error) {
	out, err := s.Access.ListConstraints(ctx, s.namespaces)
	switch {
	case err == nil:
		s.Sources.Nodes = s.Access.ServerName()
		s.Sources.Autoscalers = s.Access.ServerName()
		return out, nil
	case ctx.Err() != nil:
		return out, err

	// What the person may not read is not read from Prometheus, which knows no persons.
	case s.Access.Personal():
		s.Note(fmt.Sprintf("Warning: %v; recommendations may exceed the largest node and ignore autoscalers", err))
		s.Sources.Nodes = sourceNone
		s.Sources.Autoscalers = sourceNone

		return workload.Constraints{}, nil

	case !errors.Is(err, clusteraccess.ErrNoKubeconfig):
		s.Note(fmt.Sprintf("Warning: %v; reading nodes and autoscalers from Prometheus", err))
	}

	s.Sources.Nodes = sourceNone
	s.Sources.Autoscalers = sourceNone
	if out, err = s.metricConstraints(ctx); err != nil {
		if ctx.Err() != nil {
			return out, err
		}

		s.Note(fmt.Sprintf("Warning: %v; recommendations may exceed the largest node and ignore autoscalers", err))
	}

	return out, nil
}

// metricConstraints returns the constraints in the metrics of kube-state-metrics.
func (s *State) metricConstraints(ctx context.Context) (workload.Constraints, error) {
	scaled, err := s.metricState.Autoscalers(ctx)
	if err != nil {
		return workload.Constraints{}, err
	}

	out, err := autoscalerConstraints(ctx, scaled)
	if err != nil {
		return workload.Constraints{}, err
	}

	s.Sources.Autoscalers = SourceMetrics
	largest, err := s.source.Constraints(ctx)
	if err != nil {
		return out, err
	}

	out.MaxCPU, out.MaxMemory = largest.MaxCPU, largest.MaxMemory
	if out.Nodes, err = s.metricState.NodeGroups(ctx); err != nil {
		return out, err
	}

	// An unknown largest node bounds no recommendation, which users have to know.
	if out.MaxCPU == 0 || out.MaxMemory == 0 {
		s.Sources.Missing = append(s.Sources.Missing, "kube_node_status_allocatable: the largest node is unknown, so a recommendation may exceed it")
	} else {
		s.Sources.Nodes = SourceMetrics
	}

	return out, nil
}

// Cluster lists nodes with the given label keys, and pods. If the user selected a cluster, failing to reach it is an
// error.
func (s *State) Cluster(ctx context.Context, keys []string) (workload.Cluster, error) {
	out, err := s.Access.ListCluster(ctx, s.namespaces)
	if s.Sources.Workloads == "" && err == nil {
		s.Sources.Workloads = s.Access.ServerName()
	}

	switch {
	case err == nil:
		s.Sources.Nodes = s.Access.ServerName()
		return out, nil
	case ctx.Err() != nil || s.Access.Personal():
		return out, err
	case !errors.Is(err, clusteraccess.ErrNoKubeconfig):
		s.Note(fmt.Sprintf("Warning: %v; reading nodes from Prometheus", err))
	}

	if out, err = s.metricState.Cluster(ctx, keys); err != nil {
		return out, err
	}

	s.Sources.Nodes = SourceMetrics
	// kube-state-metrics may export pods without nodes.
	if len(out.Nodes) == 0 {
		s.Sources.Nodes = sourceNone
	}
	if s.Sources.Workloads == "" {
		s.Sources.Workloads = SourceMetrics
	}

	return out, nil
}

// EmptyNamespaces returns the reason for each requested namespace without workload.
func (s *State) EmptyNamespaces(ctx context.Context, found []workload.Workload) []string {
	var out []string
	for _, ns := range s.namespaces {
		if slices.ContainsFunc(found, func(w workload.Workload) bool { return w.Namespace == ns }) {
			continue
		}

		if s.Sources.Workloads == SourceMetrics {
			out = append(out, fmt.Sprintf("%s reports no pod in namespace %s", SourceMetrics, ns))
			continue
		}

		if missing := checkNamespace(ctx, s.Access, ns); missing != nil {
			out = append(out, missing.Error())
			continue
		}

		out = append(out, fmt.Sprintf("namespace %s has no workload", ns))
	}

	return out
}

// Lines describes the sources if they are not the Kubernetes API only.
func (s Sources) Lines() []string {
	var out []string
	if s.Workloads == SourceMetrics || s.Nodes == SourceMetrics || s.Autoscalers == SourceMetrics {
		var parts []string
		for _, part := range []struct{ data, source string }{{"workloads with their requests and limits", s.Workloads}, {"nodes", s.Nodes}, {"autoscalers", s.Autoscalers}} {
			if part.source != "" {
				parts = append(parts, part.data+" from "+part.source)
			}
		}

		out = append(out, "Sources: "+strings.Join(parts, "; ")+".")
	}

	for _, m := range s.Missing {
		out = append(out, "Missing "+m+".")
	}

	return out
}

// checkNamespace returns an error if a namespace does not exist; nil if it exists or cannot be read.
func checkNamespace(ctx context.Context, k *clusteraccess.Access, name string) error {
	lister, _, err := k.Lister()
	if err != nil {
		return nil //nolint:nilerr // whether it exists is unknown
	}

	return workloadname.MissingNamespace(ctx, lister.Sources(corev1.SchemeGroupVersion.WithKind("Namespace")).Reader, name)
}
