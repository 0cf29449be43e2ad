// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/prometheus"
)

// Where what is known of a cluster beside its history can come from.
const (
	fromMetrics = "kube-state-metrics"
	fromNobody  = "nowhere"
)

// sources say what a report rests on.
type sources struct {
	// history, workloads (with their requests and limits), nodes and autoscalers name where each is from.
	history, workloads, nodes, autoscalers string
	// missing says what was looked for and not found, and what that costs.
	missing []string
	// requestsUnknown tells that nobody's request of today is known.
	requestsUnknown bool
}

// surroundings reads what is needed beside the use: workloads, nodes and autoscalers. Each is from the Kubernetes API
// where that answers, else from kube-state-metrics in Prometheus.
type surroundings struct {
	kubernetes *kubernetesFlags
	namespaces []string
	source     *prometheus.Source
	state      *prometheus.ClusterState
	// note takes a line for the user.
	note func(string)
	from sources
}

func newSurroundings(k *kubernetesFlags, namespaces []string, source *prometheus.Source, server string, note func(string)) *surroundings {
	return &surroundings{
		kubernetes: k, namespaces: namespaces, source: source, state: source.ClusterState(namespaces), note: note,
		from: sources{history: server},
	}
}

// sources are those of all that was read, with what was missing.
func (e *surroundings) sources() sources {
	out := e.from
	out.missing = append(slices.Clone(out.missing), e.state.MissingMetrics()...)
	return out
}

// workloads asks the Kubernetes API where there is one, else Prometheus. A cluster that the user named has to answer;
// one that a kubeconfig happens to lead to need not.
func (e *surroundings) workloads(ctx context.Context) ([]workload.Workload, error) {
	found, err := e.kubernetes.inventory(ctx, e.namespaces)
	switch {
	case err == nil:
		e.from.workloads = e.kubernetes.server()
		return found, nil
	case e.kubernetes.named() || ctx.Err() != nil:
		return nil, err
	case !errors.Is(err, errNoKubeconfig):
		e.note(fmt.Sprintf("Warning: %v; taking the workloads from Prometheus", err))
	}
	if found, err = e.state.Workloads(ctx); err != nil {
		return nil, err
	}
	e.from.workloads, e.from.requestsUnknown = fromMetrics, !e.state.HasRequests()
	return found, nil
}

// constraints are the largest node and the autoscalers. Nothing is applied here, so what cannot be read is a warning.
func (e *surroundings) constraints(ctx context.Context) (workload.Constraints, error) {
	out, err := e.kubernetes.constraints(ctx, e.namespaces)
	switch {
	case err == nil:
		e.from.nodes, e.from.autoscalers = e.kubernetes.server(), e.kubernetes.server()
		return out, nil
	case ctx.Err() != nil:
		return out, err
	case !errors.Is(err, errNoKubeconfig):
		e.note(fmt.Sprintf("Warning: %v; taking nodes and autoscalers from Prometheus", err))
	}
	e.from.nodes, e.from.autoscalers = fromNobody, fromNobody
	if out, err = e.metricConstraints(ctx); err != nil {
		if ctx.Err() != nil {
			return out, err
		}
		e.note(fmt.Sprintf("Warning: %v; recommendations may be larger than any node and do not heed autoscalers", err))
	}
	return out, nil
}

// metricConstraints are those that kube-state-metrics knows.
func (e *surroundings) metricConstraints(ctx context.Context) (workload.Constraints, error) {
	scaled, err := e.state.Autoscalers(ctx)
	if err != nil {
		return workload.Constraints{}, err
	}
	out, err := heed(ctx, scaled)
	if err != nil {
		return workload.Constraints{}, err
	}
	e.from.autoscalers = fromMetrics
	largest, err := e.source.Constraints(ctx)
	if err != nil {
		return out, err
	}
	out.MaxCPU, out.MaxMemory = largest.MaxCPU, largest.MaxMemory
	if out.Nodes, err = e.state.NodeGroups(ctx); err != nil {
		return out, err
	}
	if out.MaxCPU == 0 || out.MaxMemory == 0 {
		e.from.missing = append(e.from.missing, "kube_node_status_allocatable: the largest node is not known, so a recommendation may be larger than any")
	} else {
		e.from.nodes = fromMetrics
	}
	return out, nil
}

// cluster lists nodes with the labels that are looked for, and pods. A cluster that the user named has to answer.
func (e *surroundings) cluster(ctx context.Context, keys []string) (workload.Cluster, error) {
	out, err := e.kubernetes.cluster(ctx, e.namespaces)
	if e.from.workloads == "" && err == nil {
		e.from.workloads = e.kubernetes.server()
	}
	switch {
	case err == nil:
		e.from.nodes = e.kubernetes.server()
		return out, nil
	case ctx.Err() != nil:
		return out, err
	case !errors.Is(err, errNoKubeconfig):
		e.note(fmt.Sprintf("Warning: %v; taking the nodes from Prometheus", err))
	}
	if out, err = e.state.Cluster(ctx, keys); err != nil {
		return out, err
	}
	e.from.nodes = fromMetrics
	if len(out.Nodes) == 0 {
		e.from.nodes = fromNobody
	}
	if e.from.workloads == "" {
		e.from.workloads = fromMetrics
	}
	return out, nil
}

// deserted says of each namespace that was asked for and has no workload why that may be.
func (e *surroundings) deserted(ctx context.Context, found []workload.Workload) []string {
	var out []string
	for _, ns := range e.namespaces {
		if slices.ContainsFunc(found, func(w workload.Workload) bool { return w.Namespace == ns }) {
			continue
		}
		if e.from.workloads == fromMetrics {
			out = append(out, fmt.Sprintf("%s knows no pod in namespace %s", fromMetrics, ns))
			continue
		}
		if err := e.kubernetes.namespace(ctx, ns); apierrors.IsNotFound(err) {
			out = append(out, fmt.Sprintf("namespace %s does not exist", ns))
			continue
		}
		out = append(out, fmt.Sprintf("namespace %s has no workload", ns))
	}
	return out
}

// lines say what a report rests on where that is not the Kubernetes API alone; none where it is.
func (s sources) lines() []string {
	var out []string
	if s.workloads == fromMetrics || s.nodes == fromMetrics || s.autoscalers == fromMetrics {
		var parts []string
		for _, part := range []struct{ what, from string }{{"workloads with their requests and limits", s.workloads}, {"nodes", s.nodes}, {"autoscalers", s.autoscalers}} {
			if part.from != "" {
				parts = append(parts, part.what+" from "+part.from)
			}
		}
		out = append(out, "Read: "+strings.Join(parts, "; ")+".")
	}
	for _, m := range s.missing {
		out = append(out, "Missing "+m+".")
	}
	return out
}

// jsonSources says what the output rests on.
type jsonSources struct {
	// History is the address of Prometheus or the directory of files; the others are an API server, kube-state-metrics
	// or "nowhere"; absent where they were not needed.
	History     string `json:"history,omitempty"`
	Workloads   string `json:"workloads,omitempty"`
	Nodes       string `json:"nodes,omitempty"`
	Autoscalers string `json:"autoscalers,omitempty"`
	// Missing says what was looked for and not found, and what that costs.
	Missing []string `json:"missing,omitempty"`
}

func (s sources) json() *jsonSources {
	if s.history == "" && s.workloads == "" {
		return nil
	}
	return &jsonSources{History: s.history, Workloads: s.workloads, Nodes: s.nodes, Autoscalers: s.autoscalers, Missing: s.missing}
}
