// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/cli"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/realcluster"
	"crane.io/crane/internal/testbed/realnode"
	"crane.io/crane/test/e2e/node"
)

const (
	// imagesEnv names the directory of Crane's images, from `make images-local`.
	imagesEnv = "CRANE_IMAGES"
	chartDir  = "../../../../charts/crane"
	// agentState is the directory of crane-agent on nodes.
	agentState = "/var/lib/crane-agent"
	bound      = 5 * time.Minute
	replicas   = 3
)

// TestChart installs Crane by its chart with three replicas each on three real nodes, waits for Recommendations that are learned from real
// containers, upgrades every component while webhooks are called and the agent throttles a pod, and removes all of it.
func TestChart(t *testing.T) {
	images := os.Getenv(imagesEnv)
	if images == "" {
		t.Skipf("set %s to a directory of images, as `make test-cluster` does", imagesEnv)
	}

	begin := time.Now()
	elapsed := func(what string) {
		t.Logf("%s: %.1f s after the start", what, time.Since(begin).Seconds())
	}
	nodes := node.StartAll(t, make([]node.Options, replicas)...)
	cluster := node.Open(t)
	first := nodes[0]

	started := realNodes(nodes)
	if _, err := realcluster.StartPrometheus(t.Context(), cluster, filepath.Join(node.Dir(), "prometheus"), started, io.Discard); err != nil {
		t.Fatal(err)
	}

	if err := realcluster.CreateWorkloads(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}

	cgroups := settingsBefore(t, nodes)
	tag, err := realcluster.LoadCrane(t.Context(), images, started...)
	if err != nil {
		t.Fatal(err)
	}

	elapsed("nodes, Prometheus, workloads and images")
	before := snapshot(t, first)
	chart := realcluster.Chart{
		Helm: filepath.Join(node.Bin(), "helm"), Dir: chartDir, Kubeconfig: cluster.Control().Kubeconfig(), Tag: tag, Work: t.TempDir(),
	}
	installation := []string{"--values", filepath.Join(chartDir, "values-ha.yaml"), "--set", "crds.keep=false", "--set", "craneAgent.enforce={cpu-throttle}", "--set", fmt.Sprintf(
		"networkPolicy.apiServerPorts={%d},networkPolicy.prometheusPorts={%d}",
		endpointPort(t, first, "default", "kubernetes"), endpointPort(t, first, realcluster.Monitoring, realcluster.PrometheusService))}

	if err := chart.Install(t.Context(), installation...); err != nil {
		t.Fatal(err)
	}

	elapsed("installed, every pod is Ready")
	throttle(t, first)
	awaitRecommendations(t, cluster, realcluster.SampleNamespace, realcluster.SampleWorkloads)
	elapsed("Recommendations with values")

	if err := realcluster.CreateOwnRule(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}

	checkConnections(t, first)
	elapsed("connections compared")
	testRelease(t, chart, first)
	elapsed("helm test")

	u := watchUpgrade(t, first)
	var labels []string
	for _, component := range []string{"craned", "metricAdapter", "craneScheduler", "craneAgent"} {
		labels = append(labels, "--set", component+".podLabels.upgraded=yes")
	}

	err = chart.Upgrade(t.Context(), append(installation, labels...)...)
	u.end(t)

	if err != nil {
		t.Fatal(err)
	}

	elapsed("upgraded")
	awaitRecommendations(t, cluster, realcluster.Namespace, realcluster.OwnWorkloads)

	awaitThrottled(t, first, cgroups[0])
	if err := chart.Run(t.Context(), "uninstall", realcluster.Release, "--wait", "--timeout", "3m"); err != nil {
		t.Fatal(err)
	}

	cleanNodes(t, chart.Kubeconfig, tag)
	for i, n := range nodes {
		if changed := node.ChangedSettings(cgroups[i], n.Settings(t)); len(changed) > 0 {
			t.Errorf("cgroups of %s are changed: %s, want none", n.Name(), strings.Join(changed, "; "))
		}

		for _, left := range []string{agentState, "/var/lib/kubelet/pki/crane-agent-empty"} {
			if _, err := os.Stat(n.Path(left)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s on %s: %v, want it removed", left, n.Name(), err)
			}
		}
	}

	deleteNamespace(t, first, realcluster.Namespace)
	first.Eventually(t, "the objects of before are left", func() error { return compareSnapshot(before, snapshot(t, first)) })
	elapsed("removed")
}

// awaitRecommendations logs the Recommendations of a namespace when as many workloads have one with a value.
func awaitRecommendations(t *testing.T, cluster *realnode.Cluster, namespace string, workloads int) {
	t.Helper()

	list, err := realcluster.AwaitRecommendations(t.Context(), cluster, namespace, workloads, bound)
	if err != nil {
		t.Fatal(err)
	}

	for i := range list {
		t.Logf("%s/%s: %s", namespace, list[i].Spec.TargetRef.Name, list[i].Status.Change)
	}
}

// throttleRules throttle the pod of settingsBefore all the time: its node always uses more than a thousandth of a core.
//
//go:embed testdata/throttle-rules.yaml
var throttleRules string

// settingsBefore starts a pod that uses its CPU limit on the first node and returns the cgroup settings of all nodes.
func settingsBefore(t *testing.T, nodes []*node.Node) []map[string]string {
	t.Helper()

	pod := nodes[0].Pod("batch", "cpu-hog", []string{"-threads", "1"}, node.Resources("20m", "16Mi"), node.Resources("100m", "64Mi"))
	pod.Labels = map[string]string{"workload": "batch"}
	nodes[0].Run(t, pod)

	nodes[0].Eventually(t, "the sample workloads run", func() error {
		pods, err := nodes[0].Client.CoreV1().Pods(realcluster.SampleNamespace).List(t.Context(), metav1.ListOptions{})
		for i := range pods.Items {
			if pods.Items[i].Status.Phase != corev1.PodRunning {
				err = errors.Join(err, fmt.Errorf("%s is %s", pods.Items[i].Name, pods.Items[i].Status.Phase))
			}
		}

		if err == nil && len(pods.Items) == 0 {
			err = errors.New("no pod")
		}

		return err
	})

	out := make([]map[string]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.Settings(t)
	}

	return out
}

// throttle creates the throttleRules.
func throttle(t *testing.T, n *node.Node) {
	t.Helper()

	objects, err := manifest.ParseString(throttleRules)
	if err != nil {
		t.Fatal(err)
	}

	applier, err := manifest.NewApplier(n.Config, "test")
	if err != nil {
		t.Fatal(err)
	}

	n.Eventually(t, "rules are created", func() error { return applier.Apply(t.Context(), objects...) })
}

// awaitThrottled waits until the agent has changed cgroup settings of the node.
func awaitThrottled(t *testing.T, n *node.Node, before map[string]string) {
	t.Helper()

	n.Eventually(t, "the agent throttles a pod", func() error {
		changed := node.ChangedSettings(before, n.Settings(t))
		if len(changed) == 0 {
			return errors.New("no cgroup setting is changed")
		}

		t.Logf("before the removal: %s", strings.Join(changed, "; "))
		return nil
	})
}

// testRelease runs `helm test` on the running installation, and once more without metric-adapter, which must fail and name it.
func testRelease(t *testing.T, chart realcluster.Chart, n *node.Node) {
	t.Helper()

	helmTest := func() error {
		return chart.Run(t.Context(), "test", realcluster.Release, "--timeout", "2m", "--logs")
	}
	n.Eventually(t, "helm test passes", helmTest)
	scaleAdapter(t, n, 0)

	if err := helmTest(); err == nil || !strings.Contains(err.Error(), "scaled to zero") || !strings.Contains(err.Error(), "metric-adapter") {
		t.Errorf("helm test without metric-adapter: %v", err)
	}

	scaleAdapter(t, n, replicas)
	n.Eventually(t, "helm test passes again", helmTest)
}

// scaleAdapter sets the replicas of metric-adapter and waits until that many are ready.
func scaleAdapter(t *testing.T, n *node.Node, replicas int32) {
	t.Helper()

	deployments := n.Client.AppsV1().Deployments(realcluster.Namespace)
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "metric-adapter", Namespace: realcluster.Namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if _, err := deployments.UpdateScale(t.Context(), "metric-adapter", scale, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	n.Eventually(t, "metric-adapter is scaled", func() error {
		d, err := deployments.Get(t.Context(), "metric-adapter", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != replicas {
			err = fmt.Errorf("%d of %d replicas are ready", d.Status.ReadyReplicas, replicas)
		}

		return err
	})
}

// cleanNodes runs `crane cleanup node`, as after the end of the DaemonSet.
func cleanNodes(t *testing.T, kubeconfig, tag string) {
	t.Helper()

	var out strings.Builder
	command := cli.NewCommand(cli.Streams{Out: &out, Err: &out}, "crane")
	command.SetArgs([]string{"cleanup", "node", "--kubeconfig", kubeconfig, "--image", realcluster.Registry + "/crane-agent:" + tag})

	if err := command.ExecuteContext(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("crane cleanup node: %v: %s", err, out.String())
	}
	if n := strings.Count(out.String(), "removed /host"+agentState); n != replicas {
		t.Errorf("%d nodes were cleaned up, want %d: %s", n, replicas, out.String())
	}
}
