// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package historyserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/metrics"
)

// TestDiscover_TenantsService checks that a Service of a tenant with the labels of Prometheus is not read, and that a choice between the
// Services of several namespaces is left to the user.
func TestDiscover_TenantsService(t *testing.T) {
	for name, c := range map[string]struct {
		services []string
		monitors []string
		headers  []string
		hideRBAC bool
		want     string
		errors   []string
	}{
		"proven":                           {services: []string{"monitoring/prometheus"}, monitors: []string{"monitoring"}, want: "monitoring"},
		"a tenant alone":                   {services: []string{"shop/prometheus"}, monitors: []string{"monitoring"}, errors: []string{"shop/prometheus:9090", "ClusterRoleBinding", "--prometheus-service"}},
		"a tenant first":                   {services: []string{"aaa/prometheus", "monitoring/prometheus-server"}, monitors: []string{"monitoring"}, want: "monitoring"},
		"several services":                 {services: []string{"monitoring/prometheus", "monitoring/prometheus-operated"}, monitors: []string{"monitoring"}, want: "monitoring"},
		"two namespaces":                   {services: []string{"monitoring/prometheus", "teams/prometheus"}, monitors: []string{"monitoring", "teams"}, errors: []string{"monitoring/prometheus:9090", "teams/prometheus:9090", "--prometheus-service"}},
		"two tenants":                      {services: []string{"a/prometheus", "b/prometheus"}, errors: []string{"a/prometheus:9090", "b/prometheus:9090"}},
		"no right to read bindings":        {services: []string{"monitoring/prometheus"}, hideRBAC: true, errors: []string{"monitoring/prometheus:9090", "clusterrolebindings", "--prometheus-service"}},
		"a header for a discovered server": {services: []string{"monitoring/prometheus"}, monitors: []string{"monitoring"}, headers: []string{"X-Api-Key: secret"}, errors: []string{"--prometheus-header", "monitoring/prometheus:9090"}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t, c.services, c.monitors)
			cluster.hideRBAC = c.hideRBAC

			s := NewServer()
			s.Headers = c.headers
			err := s.Discover(t.Context(), cluster.access(), func(string) {})
			if len(c.errors) == 0 && err != nil {
				t.Fatalf("Discover: %v, want a server in namespace %s", err, c.want)
			}
			if len(c.errors) > 0 && err == nil {
				t.Errorf("Discover selects %s, want an error", s.Name())
			}

			for _, want := range c.errors {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("Discover: error %q, want %q in it", err, want)
				}
			}

			asked := cluster.asked()
			if c.want != "" && !slices.Equal(asked, []string{c.want}) || c.want == "" && len(asked) > 0 {
				t.Errorf("Discover queried services in namespaces %q, want %q alone", asked, c.want)
			}
		})
	}
}

// TestDiscover_PublicErrors checks that an error names neither services nor servers in its message for people who may not list them.
func TestDiscover_PublicErrors(t *testing.T) {
	for name, services := range map[string][]string{
		"none":      {},
		"unproven":  {"team/prometheus"},
		"several":   {"monitoring/prometheus", "other/prometheus"},
		"chosen":    {},
		"not asked": {},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t, services, []string{"monitoring", "other"})
			server := NewServer()
			access := cluster.access()
			switch name {
			case "chosen":
				server.Service = "secret-place/prometheus"
			case "not asked":
				access.Fixed.Config.Host = "http://127.0.0.1:1"
			}

			err := server.Discover(t.Context(), access, func(string) {})
			if err == nil {
				t.Fatalf("Discover with services %q: no error, want one", services)
			}

			public := metrics.PublicMessage(err)
			for _, secret := range []string{"127.0.0.1", "team", "monitoring", "secret-place"} {
				if strings.Contains(public, secret) {
					t.Errorf("the public message of %q is %q, want it without %s", err, public, secret)
				}
			}
		})
	}
}

// cluster is an API server with Services that answer as Prometheus does.
type cluster struct {
	url      string
	services []string
	monitors []string
	// hideRBAC refuses to list roles and bindings.
	hideRBAC bool

	mu         sync.Mutex
	namespaces []string
}

// newCluster starts an API server. monitors are the namespaces with a ServiceAccount that may read the metrics of nodes.
func newCluster(t *testing.T, services, monitors []string) *cluster {
	t.Helper()

	c := &cluster{services: services, monitors: monitors}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL

	return c
}

func (c *cluster) access() *clusteraccess.Access {
	config := &rest.Config{Host: c.url, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	return &clusteraccess.Access{Fixed: &clusteraccess.Fixed{Config: config}}
}

// asked returns the namespaces of the services that were queried.
func (c *cluster) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()

	return slices.Compact(slices.Sorted(slices.Values(c.namespaces)))
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if path, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"); ok {
		namespace, _, _ := strings.Cut(path, "/")
		c.mu.Lock()
		c.namespaces = append(c.namespaces, namespace)
		c.mu.Unlock()

		// The probe counts series with an instant query and measures intervals with others.
		result := `"vector","result":[{"metric":{"metric":"container_cpu_usage_seconds_total"},"value":[1700000000,"1"]}]`
		if strings.HasSuffix(r.URL.Query().Get("query"), "]") {
			result = `"matrix","result":[]`
		}

		fmt.Fprintf(w, `{"status":"success","data":{"resultType":%s}}`, result)
		return
	}

	var list any
	switch {
	case r.URL.Path == "/api/v1/services":
		list = c.serviceList()
	case c.hideRBAC:
		w.WriteHeader(http.StatusForbidden)
		message := strings.TrimPrefix(r.URL.Path, "/apis/rbac.authorization.k8s.io/v1/") + " is forbidden"
		list = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: message}
	case strings.HasSuffix(r.URL.Path, "/clusterroles"):
		list = rbacv1.ClusterRoleList{
			TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleList"},
			Items: []rbacv1.ClusterRole{
				{
					ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
					Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/metrics"}, Verbs: []string{"get", "list"}}},
				},
				{
					ObjectMeta: metav1.ObjectMeta{Name: "reader"},
					Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"get"}}},
				},
			},
		}
	case strings.HasSuffix(r.URL.Path, "/clusterrolebindings"):
		list = c.bindingList()
	default:
		w.WriteHeader(http.StatusNotFound)
	}

	_ = json.NewEncoder(w).Encode(list)
}

func (c *cluster) serviceList() corev1.ServiceList {
	list := corev1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}}
	for _, s := range c.services {
		namespace, name, _ := strings.Cut(s, "/")
		list.Items = append(list.Items, corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": "prometheus"}},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 9090}}},
		})
	}

	return list
}

// bindingList returns the bindings of the monitors, and one of all tenants' accounts to a role without the right.
func (c *cluster) bindingList() rbacv1.ClusterRoleBindingList {
	binding := func(role, namespace string) rbacv1.ClusterRoleBinding {
		return rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role + "-" + namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "prometheus"}},
		}
	}

	list := rbacv1.ClusterRoleBindingList{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBindingList"}}
	for _, namespace := range c.monitors {
		list.Items = append(list.Items, binding("prometheus", namespace))
	}
	for _, s := range c.services {
		namespace, _, _ := strings.Cut(s, "/")
		list.Items = append(list.Items, binding("reader", namespace))
	}

	return list
}
