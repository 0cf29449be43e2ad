// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func service(ns, name string, labels map[string]string, ports ...corev1.ServicePort) corev1.Service {
	return corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}, Spec: corev1.ServiceSpec{Ports: ports},
	}
}

func port(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number}
}

// finder serves services in pages of two, like an API server below a path.
func finder(t *testing.T, services ...corev1.Service) *Finder {
	t.Helper()

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if name, one := strings.CutPrefix(r.URL.Path, "/cluster/api/v1/namespaces/mon/services/"); one {
			for _, s := range services {
				if s.Name == name {
					s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
					_ = json.NewEncoder(w).Encode(s)
					return
				}
			}
		}

		if r.URL.Path != "/cluster/api/v1/services" {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Reason: metav1.StatusReasonNotFound, Code: 404, Message: "services not found"})
			return
		}

		list := corev1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}}
		from := 0
		if token := r.URL.Query().Get("continue"); token != "" {
			_, _ = fmt.Sscan(token, &from)
		}

		to := min(from+2, len(services))
		list.Items = services[from:to]

		if to < len(services) {
			list.Continue = fmt.Sprint(to)
		}
		_ = json.NewEncoder(w).Encode(list)
	}))

	t.Cleanup(server.Close)
	f, err := NewFinder(&rest.Config{Host: server.URL + "/cluster", ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}

	return f
}

func TestFind(t *testing.T) {
	external := service("mon", "prometheus", nil, port("http", 80))
	external.Spec.Type = corev1.ServiceTypeExternalName
	f := finder(t,
		service("mon", "mimir", map[string]string{nameLabel: "mimir", componentLabel: "query-frontend"}, port("grpc", 9095), port("http-metrics", 8080)),
		service("mon", "vmselect", map[string]string{nameLabel: "vmselect"}, port("http", 8481)),
		service("shop", "web", map[string]string{nameLabel: "web"}, port("http", 80)),
		service("mon", "thanos", map[string]string{nameLabel: "thanos-query"}, port("grpc", 10901), port("http", 9090)),
		service("mon", "prometheus-operated", map[string]string{"operated-prometheus": "true"}, port("web", 9090)),
		service("b", "secure", map[string]string{nameLabel: "prometheus"}, port("https", 9091)),
		service("a", "old", map[string]string{appLabel: "prometheus", "component": "server"}, port("", 9090)),
		service("mon", "stack", map[string]string{appLabel: "kube-prometheus-stack-prometheus"}, port("reloader-web", 8080), port("http-web", 9090)),
		external,
		service("mon", "prometheus-server", nil),
		service("z", "chart", map[string]string{appLabel: "prometheus-prometheus"}, port("http", 9090)),
		service("z", "query", map[string]string{appLabel: "thanos-query"}, port("http", 10902)),
	)

	found, err := f.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if len(found.Proven) > 0 || found.Unknown == nil {
		t.Errorf("Find without RBAC = %d proven services, error %v, want none and an error", len(found.Proven), found.Unknown)
	}

	var got []string
	for _, c := range found.Unproven {
		got = append(got, strings.TrimPrefix(f.Address(c), f.host.String()))
	}

	want := []string{
		"/api/v1/namespaces/mon/services/stack:9090/proxy",
		"/api/v1/namespaces/b/services/https:secure:9091/proxy",
		"/api/v1/namespaces/a/services/old:9090/proxy",
		"/api/v1/namespaces/z/services/chart:9090/proxy",
		"/api/v1/namespaces/mon/services/prometheus-operated:9090/proxy",
		"/api/v1/namespaces/mon/services/vmselect:8481/proxy/select/0/prometheus",
		"/api/v1/namespaces/mon/services/thanos:9090/proxy",
		"/api/v1/namespaces/z/services/query:10902/proxy",
		"/api/v1/namespaces/mon/services/mimir:8080/proxy/prometheus",
	}

	if !slices.Equal(got, want) {
		t.Errorf("found\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestGet(t *testing.T) {
	f := finder(t,
		service("mon", "vmselect", map[string]string{nameLabel: "vmselect"}, port("http", 8481), port("https-alt", 8443)),
		service("mon", "headless", nil), service("mon", "own", nil, port("", 8080)),
	)

	for text, want := range map[string]string{
		"mon/vmselect":                "mon/vmselect:8481/select/0/prometheus",
		"mon/vmselect:8443/select/7/": "mon/vmselect:8443/select/7",
		"mon/own":                     "mon/own:8080",
		"mon/own:8080/prometheus":     "mon/own:8080/prometheus",
	} {
		choice, err := ParseServiceAddress(text)
		if err != nil {
			t.Fatal(err)
		}

		c, err := f.Resolve(t.Context(), choice)
		if err != nil || c.String() != want || c.HTTPS != (c.Port == 8443) {
			t.Errorf("Resolve(%s) = %v (%v), want %s, with HTTPS on port 8443 only", text, c, err, want)
		}
	}

	for _, c := range []ServiceAddress{{Namespace: "mon", Name: "headless"}, {Namespace: "mon", Name: "own", Port: 1}} {
		if _, err := f.Resolve(t.Context(), c); !errors.Is(err, ErrNoPort) {
			t.Errorf("Resolve(%+v): error %v, want ErrNoPort", c, err)
		}
	}

	if _, err := f.Resolve(t.Context(), ServiceAddress{Namespace: "mon", Name: "missing"}); err == nil || !strings.Contains(err.Error(), "mon/missing") {
		t.Errorf("Resolve of a missing service: error %v, want one with mon/missing", err)
	}
}

func TestParseServiceAddressRejects(t *testing.T) {
	for _, text := range []string{
		"", "/", "a", "a/", "/b", "a/b:", "a/b:0", "a/b:65536", "a/b:-1", "a/b:x", "a/b c", "a:1/b", "a/b/../c", "a/b?x=1", "a/b/%2e%2e/c", "http://x",
	} {
		if c, err := ParseServiceAddress(text); err == nil {
			t.Errorf("ParseServiceAddress(%q) = %+v, want an error", text, c)
		}
	}
}

func FuzzParseServiceAddress(f *testing.F) {
	f.Add("monitoring/prometheus:9090/path")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseServiceAddress(text)
		if err != nil {
			return
		}

		again, err := ParseServiceAddress(fmt.Sprintf("%s/%s:%d%s", c.Namespace, c.Name, max(c.Port, 1), c.Path))
		c.Port = max(c.Port, 1)

		if err != nil || again != c {
			t.Errorf("ParseServiceAddress(%q) = %+v, parsed again %+v (%v), want the same", text, c, again, err)
		}
	})
}

// TestServerNames checks that the names are distinct and that no kind matches every service.
func TestServerNames(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range ServerNames() {
		if seen[name] {
			t.Errorf("ServerNames has %s twice, want distinct names", name)
		}
		seen[name] = true
	}

	plain := service("a", "b", nil, port("http", 80))
	if serverKindIndex(&plain, serverKinds()) >= 0 {
		t.Error("serverKindIndex of a service without labels matches a kind, want none")
	}
}
