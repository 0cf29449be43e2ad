// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/simnode/tunnel"
)

// namespace creates a namespace and does not delete it, because deletion takes longer than the tests.
func namespace(t *testing.T, name string) {
	t.Helper()

	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// expose creates a service with one pod whose address leads to a port of this machine.
func expose(t *testing.T, ns, name string, labels map[string]string, port int32) {
	t.Helper()

	ctx := t.Context()
	core := client.CoreV1()
	ip := tunnel.NodeAddress(0)
	no := false

	pod, err := core.Pods(ns).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			// Without a token the pod needs no service account, which may not exist yet.
			AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "server", Image: "i"}},
		},
	}, metav1.CreateOptions{})

	for range 200 {
		if !apierrors.IsForbidden(err) { // the service account may not exist yet
			break
		}

		pod, err = core.Pods(ns).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "server", Image: "i"}}},
		}, metav1.CreateOptions{})
	}

	if err != nil {
		t.Fatal(err)
	}

	pod.Status.PodIP = ip
	pod.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	if _, err := core.Pods(ns).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	_, err = core.Services(ns).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "metrics", Port: 1}, {Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	//nolint:staticcheck // SA1019: the API server's service proxy reads Endpoints.
	_, err = core.Endpoints(ns).Create(ctx, &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: ip, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: name}}},
			Ports:     []corev1.EndpointPort{{Name: "http", Port: port}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, err := range []error{
			core.Services(ns).Delete(ctx, name, metav1.DeleteOptions{}),
			core.Pods(ns).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}),
		} {
			if err != nil {
				t.Error(err)
			}
		}

		if err := core.Endpoints(ns).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// monitor lets a ServiceAccount of a namespace read the metrics of nodes, as that of Prometheus may.
func monitor(t *testing.T, namespace string) {
	t.Helper()

	rbac := client.RbacV1()
	role, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "cli-test-"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	binding, err := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "cli-test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "prometheus"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, err := range []error{
			rbac.ClusterRoleBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{}),
			rbac.ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{}),
		} {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

func portOf(t *testing.T, address string) int32 {
	t.Helper()

	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}

	port, err := strconv.ParseInt(u.Port(), 10, 32)
	if err != nil {
		t.Fatal(err)
	}

	return int32(port)
}

// deployWeb creates the Deployment of the history.
func deployWeb(t *testing.T) {
	t.Helper()

	namespace(t, "shop")
	match := map[string]string{"app": "web"}
	_, err := client.AppsV1().Deployments("shop").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: match},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: match},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "app", Image: "i",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
				}}},
			},
		},
	}, metav1.CreateOptions{})

	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// request returns the recommended CPU request of shop/web in cores.
func request(t *testing.T, out string) float64 {
	t.Helper()

	var report struct {
		Workloads []struct {
			Name       string
			Containers []struct {
				CPU struct {
					Recommended struct{ Request struct{ Value float64 } }
				}
			}
		}
	}

	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("parsing the report of crane recommend: %v: %s", err, out)
	}

	for _, w := range report.Workloads {
		if w.Name == "web" {
			return w.Containers[0].CPU.Recommended.Request.Value
		}
	}

	t.Fatalf("no workload web in %s, want one", out)
	return 0
}

var prometheusLabels = map[string]string{"app.kubernetes.io/name": "prometheus", "app.kubernetes.io/component": "server"}

// TestRecommendFindsPrometheus: a kubeconfig is sufficient; results through the API server's service proxy equal those
// of direct access, and only GET is used.
func TestRecommendFindsPrometheus(t *testing.T) {
	deployWeb(t)
	namespace(t, "monitoring")
	monitor(t, "monitoring")
	prom := servePrometheus(t, history)

	// That of a tenant, with another history.
	expose(t, "shop", "a-decoy", map[string]string{"app": "kube-prometheus-stack-prometheus"}, 1)
	// A better match by labels that does not respond.
	expose(t, "monitoring", "a-dead-one", map[string]string{"app": "kube-prometheus-stack-prometheus"}, 1)
	expose(t, "monitoring", "prometheus-server", prometheusLabels, portOf(t, prom.URL()))
	expose(t, "monitoring", "thanos-query", map[string]string{"app.kubernetes.io/name": "thanos-query"}, portOf(t, prom.URL()))

	args := []string{"recommend", "--kubeconfig", control.Kubeconfig(), "-n", "shop", "-o", "json", "--no-cache"}
	out, errOut, code := crane(t, args...)
	if code != 0 {
		t.Fatalf("crane recommend: exit %d, want 0: %s", code, errOut)
	}

	for _, want := range []string{
		"monitoring/a-dead-one:80 is not used", "Using Prometheus monitoring/prometheus-server:80",
		"other candidates: monitoring/thanos-query:80", "--prometheus-service", "Not used: shop/a-decoy:80",
	} {
		if !strings.Contains(errOut, want) {
			t.Errorf("stderr %s, want %q in it", errOut, want)
		}
	}

	if n := prom.posts.Load(); n > 0 {
		t.Errorf("%d requests with POST, want none", n)
	}

	direct, errOut, code := crane(t, append(args, "--prometheus", prom.URL())...)
	if code != 0 {
		t.Fatalf("crane recommend --prometheus: exit %d, want 0: %s", code, errOut)
	}

	if got, want := request(t, out), request(t, direct); got != want || got <= 0 {
		t.Errorf("%v cores through the API server, want %v as directly", got, want)
	}

	chosen, errOut, code := crane(t, append(args, "--prometheus-service", "monitoring/thanos-query")...)
	if code != 0 || request(t, chosen) != request(t, direct) {
		t.Errorf("--prometheus-service: exit %d, want 0 and the same request: %s", code, errOut)
	}

	for service, want := range map[string]string{
		"monitoring/nobody": "not found", "monitoring/thanos-query:81": "no such port", "monitoring": "want NAMESPACE/NAME",
	} {
		if _, errOut, code := crane(t, append(args, "--prometheus-service", service)...); code == 0 || !strings.Contains(errOut, want) {
			t.Errorf("--prometheus-service %s: exit %d, want an error with %q: %s", service, code, want, errOut)
		}
	}

	findings, errOut, code := doctor(t, "--kubeconfig", control.Kubeconfig())
	if f := line(t, findings, "Prometheus"); code != 0 || f.Status != "ok" || !strings.Contains(f.Detail, "monitoring/prometheus-server") {
		t.Errorf("exit %d, want 0: %s; finding %+v, want the server found", code, errOut, f)
	}
}

// TestProxyNeedsARight: the error for a user who may read the service but not proxy to it names the missing right.
func TestProxyNeedsARight(t *testing.T) {
	namespace(t, "monitoring")
	prom := servePrometheus(t, history)
	expose(t, "monitoring", "prometheus-server", prometheusLabels, portOf(t, prom.URL()))

	kubeconfig, err := control.KubeconfigFor(t.Context(), "viewer", controlplane.CertificateUser("viewer"))
	if err != nil {
		t.Fatal(err)
	}

	if _, errOut, code := crane(t, "recommend", "--kubeconfig", kubeconfig); code != 1 || !strings.Contains(errOut, "listing the services") || !strings.Contains(errOut, "--prometheus-service") {
		t.Errorf("crane recommend: exit %d, want 1 and the flag --prometheus-service: %s", code, errOut)
	}

	bind(t, "viewer", "view")
	var errOut string
	var code int
	awaitAuthorized(t, func() error {
		if _, errOut, code = crane(t, "recommend", "--kubeconfig", kubeconfig); strings.Contains(errOut, "listing the services") {
			return errors.New(errOut)
		}

		return nil
	})

	// Without the right to read bindings, no Service is that of an administrator.
	if code != 1 || !strings.Contains(errOut, "right to list clusterroles and clusterrolebindings") {
		t.Errorf("exit %d, want 1 and the missing right to list bindings: %s", code, errOut)
	}

	_, errOut, code = crane(t, "recommend", "--kubeconfig", kubeconfig, "--prometheus-service", "monitoring/prometheus-server")
	if code != 1 || !strings.Contains(errOut, "services/proxy") {
		t.Errorf("--prometheus-service: exit %d, want 1 and the missing right to the proxy: %s", code, errOut)
	}
}

// TestRecommendKeepsDays: the second run sends fewer queries and has the same result.
func TestRecommendKeepsDays(t *testing.T) {
	deployWeb(t)
	prom := servePrometheus(t, history)

	args := []string{"recommend", "--kubeconfig", control.Kubeconfig(), "-n", "shop", "-o", "json", "--prometheus", prom.URL(), "--cache-dir", t.TempDir()}
	var asked []int64
	var requests []float64
	for range 2 {
		before := prom.posts.Load() + prom.gets.Load()
		out, errOut, code := crane(t, args...)
		// A busy machine takes longer than the time after which progress is reported.
		if code != 0 || errOut != "" && !strings.HasPrefix(errOut, "reading the history of 1 workload: ") {
			t.Fatalf("crane recommend: exit %d, want 0: %s", code, errOut)
		}

		asked = append(asked, prom.posts.Load()+prom.gets.Load()-before)
		requests = append(requests, request(t, out))
	}

	if requests[0] != requests[1] || asked[1] >= asked[0] {
		t.Errorf("requests of %v cores after %v queries, want equal requests with fewer queries", requests, asked)
	}
}
