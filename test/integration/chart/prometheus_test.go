// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/metrics/discover"
)

// TestDiscoveredPrometheus checks that the Service of a tenant does not become the Prometheus of Crane, neither at the installation nor at an
// upgrade, and that credentials are not sent to a server that was discovered.
func TestDiscoveredPrometheus(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"aaa-tenant", "monitoring", "teams"} {
		f.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}

	f.createService("aaa-tenant", "decoy")
	f.checkRefused("a tenant's Service alone", []string{"aaa-tenant/decoy", "ClusterRoleBinding"}, "install")

	f.createService("monitoring", "prometheus")
	f.monitor("monitoring")
	f.helm("install", release, chart, "--create-namespace", "--set", registry)

	const want = "http://prometheus.monitoring.svc:9090"
	if address := f.prometheusArgument(); address != want {
		t.Errorf("craned reads %s, want %s", address, want)
	}

	f.createService("teams", "a-better-one")
	f.monitor("teams")
	f.checkRefused("two namespaces", []string{"monitoring/prometheus", "teams/a-better-one"}, "install")
	f.checkRefused("a token", []string{"credentials"}, "upgrade", "--set", "prometheus.bearerToken.secret=token")
	f.checkRefused("a header", []string{"credentials"}, "upgrade", "--set", "prometheus.headers.X-Api-Key=secret")

	f.helm("upgrade", release, chart, "--set", registry)
	if address := f.prometheusArgument(); address != want {
		t.Errorf("after an upgrade craned reads %s, want %s as before", address, want)
	}
}

// checkRefused checks the message with which helm refuses to render the chart for the cluster.
func (f *fixture) checkRefused(name string, want []string, command string, args ...string) {
	f.Helper()

	chosen := release
	if command == "install" {
		chosen = "another"
	}

	_, err := tryHelm(f.T, append([]string{command, chosen, chart, "--dry-run=server", "--set", registry, "--namespace", namespace, "--kubeconfig", f.control.Kubeconfig()}, args...)...)
	if err == nil {
		f.Errorf("%s: helm %s succeeds, want an error with %q", name, command, want)
		return
	}

	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			f.Errorf("%s: helm %s: %v, want %q in it", name, command, err, text)
		}
	}
}

// createService creates the Service of a Prometheus.
func (f *fixture) createService(namespace, name string) {
	f.Helper()

	f.create(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "kube-prometheus-stack-prometheus"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http-web", Port: 9090}}},
	})
}

// monitor lets a ServiceAccount of a namespace read the metrics of nodes, as that of Prometheus may.
func (f *fixture) monitor(namespace string) {
	f.Helper()

	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "monitor-" + namespace},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}}},
	}
	f.create(role)
	f.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "prometheus"}},
	})
}

// create creates an object and deletes it after the test.
func (f *fixture) create(o client.Object) {
	f.Helper()

	if err := f.client.Create(f.Context(), o); err != nil {
		f.Fatal(err)
	}

	f.Cleanup(func() {
		if err := f.client.Delete(context.WithoutCancel(f.Context()), o); client.IgnoreNotFound(err) != nil {
			f.Error(err)
		}
	})
}

// createPrometheus creates Services of two servers, the preferred one not the first by name.
func (f *fixture) createPrometheus() {
	f.Helper()

	for _, s := range []*corev1.Service{
		{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a-thanos", Labels: map[string]string{"app.kubernetes.io/name": "thanos-query"}},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "grpc", Port: 10901}, {Name: "http", Port: 9090}}},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "monitoring", Labels: map[string]string{"app": "kube-prometheus-stack-prometheus"}},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "reloader-web", Port: 8080}, {Name: "http-web", Port: 9091}}},
		},
	} {
		f.create(s)
	}
}

// discoveredPrometheus returns the address in the cluster of the server that crane doctor prefers.
func (f *fixture) discoveredPrometheus() string {
	f.Helper()

	finder, err := discover.NewFinder(f.control.Config())
	if err != nil {
		f.Fatal(err)
	}

	found, err := finder.Find(f.Context())
	if err != nil || len(found.Proven) != 2 {
		f.Fatalf("found %+v: %v, want two servers", found, err)
	}

	server := found.Proven[0]
	if server.HTTPS || server.Path != "" || server.Port != 9091 {
		f.Fatalf("found %+v, want port 9091 over HTTP", server)
	}

	return "http://" + server.Name + "." + server.Namespace + ".svc:9091"
}

func (f *fixture) prometheusArgument() string {
	f.Helper()

	craned := &appsv1.Deployment{}
	if err := f.client.Get(f.Context(), client.ObjectKey{Namespace: namespace, Name: "craned"}, craned); err != nil {
		f.Fatal(err)
	}

	for _, arg := range craned.Spec.Template.Spec.Containers[0].Args {
		if address, ok := strings.CutPrefix(arg, "--prometheus-address="); ok {
			return address
		}
	}

	return ""
}
