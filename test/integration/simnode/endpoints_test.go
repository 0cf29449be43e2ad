// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"

	"crane.io/crane/internal/testbed/controlplane"
)

func metricsOf(t *testing.T) metricsclient.Interface {
	t.Helper()

	client, err := metricsclient.NewForConfig(cluster.config)
	if err != nil {
		t.Fatal(err)
	}

	return client
}

// eventuallyUsed waits until metrics.k8s.io reports this memory use for all pods of the namespace.
func eventuallyUsed(t *testing.T, namespace string, pods int, bytes int64) {
	t.Helper()

	client := metricsOf(t)
	eventually(t, "metrics show the use", func(ctx context.Context) (bool, string) {
		list, err := client.MetricsV1beta1().PodMetricses(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}

		of := 0
		for _, p := range list.Items {
			if slices.ContainsFunc(p.Containers, func(c metricsv1beta1.ContainerMetrics) bool { return c.Usage.Memory().Value() == bytes }) {
				of++
			}
		}

		return of == pods, fmt.Sprintf("%+v", list.Items)
	})
}

func TestMetricsAPI(t *testing.T) {
	ns := namespaceFor(t)
	for _, name := range []string{"one", "two"} {
		create(t, podIn(ns, name, "general", "100m", "64Mi"))
		podUntil(t, ns, name, "Ready", ready)
	}

	cluster.load.use(ns, "app", 0.25, 32<<20) // more CPU than the limit of 0.1
	eventuallyUsed(t, ns, 2, 32<<20)

	client := metricsOf(t).MetricsV1beta1()
	one, err := client.PodMetricses(ns).Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if cpu := one.Containers[0].Usage.Cpu().MilliValue(); cpu != 100 || one.Window.Seconds() != 30 || one.Labels["app"] != "one" {
		t.Errorf("cpu %dm, window %v, labels %v, want 100m, 30 s and one", cpu, one.Window, one.Labels)
	}

	list, err := client.PodMetricses("").List(t.Context(), metav1.ListOptions{LabelSelector: "app=two"})
	if err != nil {
		t.Fatal(err)
	}

	if len(list.Items) != 1 || list.Items[0].Name != "two" {
		t.Errorf("label selector: %+v, want pod two alone", list.Items)
	}

	nodes, err := client.NodeMetricses().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if len(nodes.Items) < len(pools())-1 {
		t.Errorf("%d nodes, want %d or more", len(nodes.Items), len(pools())-1)
	}
	if _, err := client.PodMetricses(ns).Get(t.Context(), "three", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("missing pod: %v", err)
	}
	if _, err := client.PodMetricses(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.x=1"}); !apierrors.IsBadRequest(err) {
		t.Errorf("missing field: %v", err)
	}

	groups, lists, err := cluster.client.Discovery().ServerGroupsAndResources()
	if err != nil || len(groups) == 0 {
		t.Fatalf("discovery: %v", err)
	}

	found := false
	for _, l := range lists {
		found = found || l.GroupVersion == "metrics.k8s.io/v1beta1" && len(l.APIResources) == 2
	}

	if !found {
		t.Error("metrics.k8s.io is not among the discovered groups, want it")
	}
}

func TestMetricsAPIAsksForRights(t *testing.T) {
	config, err := cluster.plane.ConfigFor(t.Context(), controlplane.CertificateUser("nobody"))
	if err != nil {
		t.Fatal(err)
	}

	client, err := metricsclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	_, err = client.MetricsV1beta1().NodeMetricses().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights: %v", err)
	}
}

func TestHorizontalPodAutoscaler(t *testing.T) {
	ns := namespaceFor(t)
	d := deployment(ns, "web", "general", 1)
	if _, err := cluster.client.AppsV1().Deployments(ns).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	cluster.load.use(ns, "app", 0.1, 20<<20)
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    new(int32(1)), MaxReplicas: 4,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50))},
			}}},
		},
	}

	if _, err := cluster.client.AutoscalingV2().HorizontalPodAutoscalers(ns).Create(t.Context(), hpa, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the autoscaler scales up on what the nodes measure", func(ctx context.Context) (bool, string) {
		got, err := cluster.client.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}

		return got.Status.ReadyReplicas >= 2, fmt.Sprintf("%+v", got.Status)
	})
}

// raw returns the response of the API server to a GET.
func raw(t *testing.T, path string) string {
	t.Helper()

	body, err := cluster.client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}

	return string(body)
}

func TestKubeletEndpointsThroughTheNodeProxy(t *testing.T) {
	ns := namespaceFor(t)
	create(t, podIn(ns, "web", "tight", "100m", "64Mi"))
	podUntil(t, ns, "web", "Ready", ready)
	eventuallyUsed(t, ns, 1, 20<<20)

	const proxy = "/api/v1/nodes/tight/proxy"
	if got := raw(t, proxy+"/healthz"); got != "ok" {
		t.Errorf("healthz: %q, want ok", got)
	}

	var pods corev1.PodList
	if err := json.Unmarshal([]byte(raw(t, proxy+"/pods")), &pods); err != nil || len(pods.Items) == 0 {
		t.Errorf("pods: %v, %d items, want one or more", err, len(pods.Items))
	}

	text := raw(t, proxy+"/metrics/cadvisor")
	for _, name := range []string{
		"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_memory_rss", "container_memory_cache",
		"container_cpu_cfs_periods_total", "container_cpu_cfs_throttled_periods_total", "container_spec_memory_limit_bytes", "machine_cpu_cores",
	} {
		if !strings.Contains(text, "\n"+name+"{") && !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("cadvisor: no %s, want one", name)
		}
	}

	if !strings.Contains(text, `namespace="`+ns+`",pod="web"`) {
		t.Error("cadvisor: no series of the pod, want one")
	}

	for path, want := range map[string]string{
		"/metrics/resource": "container_memory_working_set_bytes{", "/stats/summary": `"usageNanoCores":100000000`,
		"/configz": `"kubeletconfig"`, "/containerLogs/" + ns + "/web/app": "simulated node tight", "/metrics": "kubelet_running_pods",
	} {
		if got := raw(t, proxy+path); !strings.Contains(got, want) {
			t.Errorf("%s: %.300q, want %q in it", path, got, want)
		}
	}

	_, err := cluster.client.CoreV1().RESTClient().Post().AbsPath(proxy + "/exec/" + ns + "/web/app").DoRaw(t.Context())
	if status, ok := apiStatus(err); !ok || status.Status().Code != http.StatusNotImplemented {
		t.Errorf("exec: %v", err)
	}

	logs, err := cluster.client.CoreV1().Pods(ns).GetLogs("web", &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil || !strings.Contains(string(logs), "writes no log") {
		t.Errorf("logs: %q, %v, want the notice that it writes no log", logs, err)
	}
}

func TestKubeletEndpointAsksWhoCalls(t *testing.T) {
	node, err := cluster.client.CoreV1().Nodes().Get(t.Context(), "tight", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	url := fmt.Sprintf("https://127.0.0.1:%d/pods", node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	status := func(token string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}

		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}

		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // the node's certificate is not tested
		defer transport.CloseIdleConnections()

		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}

		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}

		return resp.StatusCode
	}

	if got := status(""); got != http.StatusUnauthorized {
		t.Errorf("without credentials: %d, want 401", got)
	}
	if got := status("nonsense"); got != http.StatusUnauthorized {
		t.Errorf("an invalid token: %d, want 401", got)
	}

	config, err := cluster.plane.ConfigFor(t.Context(), controlplane.ServiceAccount("kube-system", "default"))
	if err != nil {
		t.Fatal(err)
	}

	if got := status(config.BearerToken); got != http.StatusForbidden {
		t.Errorf("a service account without rights: %d, want 403", got)
	}
}

func TestKubectlTopAndExplain(t *testing.T) {
	kubectl, err := filepath.Abs("../../../bin/kubectl")
	if err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(kubectl); err != nil {
		t.Skip("bin/kubectl is not built (make tools)")
	}

	ns := namespaceFor(t)
	create(t, podIn(ns, "web", "general", "100m", "64Mi"))
	podUntil(t, ns, "web", "Ready", ready)
	eventuallyUsed(t, ns, 1, 20<<20)

	for want, args := range map[string][]string{
		"web": {"top", "pods", "-A"}, "general-1": {"top", "nodes"},
		"for each container": {"explain", "podmetrics.containers", "--api-version=metrics.k8s.io/v1beta1"},
	} {
		// The API server takes some seconds to read the description.
		eventually(t, "kubectl "+strings.Join(args, " "), func(ctx context.Context) (bool, string) {
			cmd := exec.CommandContext(ctx, kubectl, append([]string{"--kubeconfig", cluster.plane.Kubeconfig()}, args...)...)
			out, err := cmd.CombinedOutput()
			return err == nil && strings.Contains(string(out), want), fmt.Sprintf("%v\n%s", err, out)
		})
	}
}

// apiStatus returns the API server's status in an error chain.
func apiStatus(err error) (apierrors.APIStatus, bool) {
	var status apierrors.APIStatus
	ok := errors.As(err, &status)
	return status, ok
}
