// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// serverKind is one way in which a server makes itself known.
type serverKind struct {
	// server is what it is called in messages.
	server string
	// labels that the service has; nil where the name alone tells.
	labels map[string]string
	// names that the service has; nil where the labels alone tell.
	names []string
	// ports by name, the first that is there; without any, the first port of the service.
	ports []string
	// path before the query API.
	path string
}

const (
	nameLabel      = "app.kubernetes.io/name"
	componentLabel = "app.kubernetes.io/component"
	appLabel       = "app"
)

// serverKinds lists the kinds in the order in which they are tried. First come those that hold one cluster, the one of the
// kubeconfig; then those that may hold several, whose pods of the same name would be taken for one. Within each, what
// serves all of the data comes before what serves a shard.
//
// The labels are those of the services as their makers write them: the Helm charts of prometheus-community
// (kube-prometheus-stack, prometheus), kube-prometheus' jsonnet, the Prometheus operator (prometheus-operated), OpenShift's
// and Rancher's monitoring, the charts and the operator of VictoriaMetrics, the charts of Thanos by Bitnami and
// stevehipwell and kube-thanos' jsonnet, and Grafana's chart mimir-distributed. The paths are those that VictoriaMetrics
// ("URL format" of its cluster version) and Mimir ("Prometheus HTTP prefix") document.
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
	// vmselectPath is that of tenant 0, the one that an installation without tenants has.
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

// serverKindIndex is the place of a service in known(), or -1.
func serverKindIndex(s *corev1.Service, kinds []serverKind) int {
	if s.Spec.Type == corev1.ServiceTypeExternalName || len(s.Spec.Ports) == 0 {
		return -1
	}
	return slices.IndexFunc(kinds, func(k serverKind) bool { return k.matches(s) })
}

// ServerNames are the names of the servers that are looked for, each once, in order.
func ServerNames() []string {
	var out []string
	for _, k := range serverKinds() {
		if !slices.Contains(out, k.server) {
			out = append(out, k.server)
		}
	}
	return out
}
