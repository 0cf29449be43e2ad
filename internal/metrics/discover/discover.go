// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
)

// Candidate is a service that may serve the Prometheus HTTP API.
type Candidate struct {
	// Server is the probable name of the server's software; empty where unknown.
	Server          string
	Namespace, Name string
	// Port is a number, as the names of ports are optional.
	Port int32
	// HTTPS is set where the server uses TLS.
	HTTPS bool
	// Path precedes the paths of the query API; it is empty or has a leading slash.
	Path string
}

// String returns the candidate in the format of --prometheus-service: NAMESPACE/NAME:PORT and the path.
func (c Candidate) String() string {
	return fmt.Sprintf("%s/%s:%d%s", c.Namespace, c.Name, c.Port, c.Path)
}

// Finder finds candidates in one cluster.
type Finder struct {
	services  corev1client.CoreV1Interface
	rbac      rbacv1client.RbacV1Interface
	host      *url.URL
	transport http.RoundTripper
}

// NewFinder returns a finder for the cluster of a client configuration. It sends no request.
func NewFinder(config *rest.Config) (*Finder, error) {
	services, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", config.Host, err)
	}

	rbac, err := rbacv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", config.Host, err)
	}

	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", config.Host, err)
	}

	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", config.Host, err)
	}

	return &Finder{
		services:  services,
		rbac:      rbac,
		host:      host,
		transport: transport,
	}, nil
}

// pageSize is the maximum number of objects in one response. A cluster may have thousands of services.
const pageSize = 500

// Candidates are services of known servers, in the order of serverKinds, then by namespace and name.
type Candidates struct {
	// Proven are in a namespace with a ServiceAccount that may read the metrics of all nodes, by a ClusterRoleBinding.
	Proven []Candidate
	// Unproven are in other namespaces, and may be those of their users.
	Unproven []Candidate
	// Unknown is why no namespace could be proven: usually the user has no right to list ClusterRoles and ClusterRoleBindings.
	Unknown error
}

// Find lists the services of known servers. Without any there is no error.
func (f *Finder) Find(ctx context.Context) (Candidates, error) {
	type ranked struct {
		Candidate
		rank int
	}

	var found []ranked
	kinds := serverKinds()
	err := pages(func(options metav1.ListOptions) (string, error) {
		list, err := f.services.Services(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return "", err
		}

		for i := range list.Items {
			if rank := serverKindIndex(&list.Items[i], kinds); rank >= 0 {
				found = append(found, ranked{newCandidate(&list.Items[i], kinds[rank]), rank})
			}
		}

		return list.Continue, nil
	})
	if err != nil {
		return Candidates{}, fmt.Errorf("listing the services of all namespaces, to find Prometheus: %w", err)
	}

	slices.SortFunc(found, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})

	var out Candidates
	if len(found) == 0 {
		return out, nil
	}

	var monitoring map[string]bool
	monitoring, out.Unknown = f.monitoringNamespaces(ctx)
	for _, c := range found {
		if monitoring[c.Namespace] {
			out.Proven = append(out.Proven, c.Candidate)
		} else {
			out.Unproven = append(out.Unproven, c.Candidate)
		}
	}

	return out, nil
}

func newCandidate(s *corev1.Service, k serverKind) Candidate {
	port := s.Spec.Ports[0]
	for _, name := range k.ports {
		if i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == name }); i >= 0 {
			port = s.Spec.Ports[i]
			break
		}
	}

	return Candidate{
		Server:    k.server,
		Namespace: s.Namespace,
		Name:      s.Name,
		Port:      port.Port,
		HTTPS:     usesTLS(port),
		Path:      k.path,
	}
}

func usesTLS(p corev1.ServicePort) bool {
	return p.Name == "https" || strings.HasPrefix(p.Name, "https-") || p.Port == 443 || p.AppProtocol != nil && strings.EqualFold(*p.AppProtocol, "https")
}

// ServiceAddress is a service that the user specified.
type ServiceAddress struct {
	Namespace, Name string
	// Port is 0 and Path is empty where the user did not specify them.
	Port int32
	Path string
}

// ParseServiceAddress parses NAMESPACE/NAME[:PORT][/PATH].
func ParseServiceAddress(text string) (ServiceAddress, error) {
	wrong := fmt.Errorf("%q: want NAMESPACE/NAME, with :PORT and /PATH where needed, for example monitoring/prometheus:9090", text)
	namespace, rest, ok := strings.Cut(text, "/")

	service, path, withPath := strings.Cut(rest, "/")
	name, port, withPort := strings.Cut(service, ":")
	if !ok || namespace == "" || name == "" || strings.ContainsAny(text, " ?#%") || strings.Contains(namespace, ":") {
		return ServiceAddress{}, wrong
	}

	// A path that climbs could leave the proxy of the service at the API server.
	c := ServiceAddress{Namespace: namespace, Name: name}
	if path = strings.TrimSuffix(path, "/"); withPath && path != "" {
		if slices.Contains(strings.Split(path, "/"), "..") {
			return ServiceAddress{}, wrong
		}

		c.Path = "/" + path
	}

	if withPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return ServiceAddress{}, wrong
		}

		c.Port = int32(n)
	}

	return c, nil
}

// ErrNoPort means that a service lacks the requested port or has no port.
var ErrNoPort = errors.New("no such port")

// Resolve reads a service that the user specified. A missing port or path is the default of the recognized kind of server.
func (f *Finder) Resolve(ctx context.Context, choice ServiceAddress) (Candidate, error) {
	s, err := f.services.Services(choice.Namespace).Get(ctx, choice.Name, metav1.GetOptions{})
	if err != nil {
		return Candidate{}, fmt.Errorf("service %s/%s: %w", choice.Namespace, choice.Name, err)
	}

	if len(s.Spec.Ports) == 0 {
		return Candidate{}, fmt.Errorf("service %s/%s: %w", choice.Namespace, choice.Name, ErrNoPort)
	}

	// A service of an unknown kind is used as well: the user chose it.
	kinds := serverKinds()
	k := serverKind{}
	if i := serverKindIndex(s, kinds); i >= 0 {
		k = kinds[i]
	}

	c := newCandidate(s, k)
	if choice.Path != "" {
		c.Path = choice.Path
	}

	if choice.Port == 0 {
		return c, nil
	}

	i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == choice.Port })
	if i < 0 {
		return Candidate{}, fmt.Errorf("service %s/%s: port %d: %w", choice.Namespace, choice.Name, choice.Port, ErrNoPort)
	}

	c.Port = choice.Port
	c.HTTPS = usesTLS(s.Spec.Ports[i])
	return c, nil
}

// Address returns the URL of a candidate behind the service proxy of the API server. It requires Transport.
func (f *Finder) Address(c Candidate) string {
	scheme := ""
	if c.HTTPS {
		scheme = "https:"
	}

	u := *f.host
	u.Path = strings.TrimSuffix(u.Path, "/") +
		fmt.Sprintf("/api/v1/namespaces/%s/services/%s%s:%d/proxy%s", c.Namespace, scheme, c.Name, c.Port, c.Path)

	return u.String()
}

// Transport returns a transport with the credentials of the client configuration.
func (f *Finder) Transport() http.RoundTripper { return f.transport }

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
		return serverKind{
			server: server,
			labels: map[string]string{nameLabel: name},
			ports:  ports,
			path:   path,
		}
	}

	part := func(server, name, component, path string, ports ...string) serverKind {
		return serverKind{
			server: server,
			labels: map[string]string{nameLabel: name, componentLabel: component},
			ports:  ports,
			path:   path,
		}
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
