// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// serverKind describes the services of one kind of server.
type serverKind struct {
	// server is the name of the software in messages.
	server string
	// labels are required on the service; nil means any.
	labels map[string]string
	// names are the possible names of the service; nil means any.
	names []string
	// ports are names of ports in order of preference. Where the service has none of them, its first port is used.
	ports []string
	// path precedes the paths of the query API.
	path string
}

const (
	nameLabel      = "app.kubernetes.io/name"
	componentLabel = "app.kubernetes.io/component"
	appLabel       = "app"
)

// serverKinds lists the kinds in the order in which callers probe them. Servers with the data of one cluster come first. Servers that may
// hold several clusters follow, as pods with the same name in two clusters are indistinguishable there. Within both groups, servers of all
// data come before servers of a shard.
//
// The labels are those that the projects set: the Helm charts of prometheus-community (kube-prometheus-stack, prometheus), the jsonnet of
// kube-prometheus, the Prometheus operator (prometheus-operated), the monitoring of OpenShift and Rancher, the charts and the operator of
// VictoriaMetrics, the charts of Thanos by Bitnami and stevehipwell, the jsonnet of kube-thanos, and Grafana's chart mimir-distributed. The
// paths are from the documentation of VictoriaMetrics ("URL format" of its cluster version) and Mimir ("Prometheus HTTP prefix").
func serverKinds() []serverKind {
	web := []string{"http-web", "web", "http", "https"}
	named := func(server, name string, path string, ports ...string) serverKind {
		return serverKind{server: server, labels: map[string]string{nameLabel: name}, ports: ports, path: path}
	}
	part := func(server, name, component, path string, ports ...string) serverKind {
		return serverKind{server: server, labels: map[string]string{nameLabel: name, componentLabel: component}, ports: ports, path: path}
	}
	app := func(server, app string, ports ...string) serverKind {
		return serverKind{server: server, labels: map[string]string{appLabel: app}, ports: ports}
	}
	return []serverKind{
		app("Prometheus", "kube-prometheus-stack-prometheus", web...),
		app("Prometheus", "rancher-monitoring-prometheus", web...),
		app("Prometheus", "prometheus-operator-prometheus", web...),
		named("Prometheus", "prometheus", "", web...),
		{server: "Prometheus", labels: map[string]string{appLabel: "prometheus", "component": "server"}, ports: web},
		app("Prometheus", "prometheus", web...),
		app("Prometheus", "prometheus-server", web...),
		app("Prometheus", "prometheus-prometheus", web...),
		{server: "Prometheus", names: []string{"prometheus-operated", "prometheus-k8s", "prometheus-server", "prometheus"}, ports: web},
		named("VictoriaMetrics (single)", "vmsingle", "", "http"),
		named("VictoriaMetrics (single)", "victoria-metrics-single", "", "http"),
		named("VictoriaMetrics (vmselect)", "vmselect", vmselectPath, "http"),
		app("VictoriaMetrics (vmselect)", "vmselect", "http").withPath(vmselectPath),
		named("Thanos (query-frontend)", "thanos-query-frontend", "", "http"),
		part("Thanos (query-frontend)", "thanos", "query-frontend", "", "http"),
		named("Thanos (querier)", "thanos-query", "", "http"),
		part("Thanos (querier)", "thanos", "query", "", "http"),
		part("Thanos (querier)", "thanos-query", "query-layer", "", "http", "web"),
		app("Thanos (querier)", "thanos-querier", "http", "web"),
		app("Thanos (querier)", "thanos-query", "http", "web"),
		part("Mimir (query-frontend)", "mimir", "query-frontend", mimirPath, "http-metrics"),
		part("Mimir (gateway)", "mimir", "gateway", mimirPath, "http-metrics", "http"),
		part("Mimir (gateway)", "mimir", "nginx", mimirPath, "http-metric", "http"),
	}
}

const (
	// vmselectPath is the path of tenant 0, the default tenant.
	vmselectPath = "/select/0/prometheus"
	mimirPath    = "/prometheus"
)

func (k serverKind) withPath(path string) serverKind {
	k.path = path
	return k
}

func (k serverKind) matches(s *corev1.Service) bool {
	for name, value := range k.labels {
		if s.Labels[name] != value {
			return false
		}
	}
	return len(k.names) == 0 || slices.Contains(k.names, s.Name)
}

// serverKindIndex returns the index of the first kind that a service matches, or -1.
func serverKindIndex(s *corev1.Service, kinds []serverKind) int {
	if s.Spec.Type == corev1.ServiceTypeExternalName || len(s.Spec.Ports) == 0 {
		return -1
	}
	return slices.IndexFunc(kinds, func(k serverKind) bool { return k.matches(s) })
}

// ServerNames returns the distinct names of the known servers in order.
func ServerNames() []string {
	var out []string
	for _, k := range serverKinds() {
		if !slices.Contains(out, k.server) {
			out = append(out, k.server)
		}
	}
	return out
}
