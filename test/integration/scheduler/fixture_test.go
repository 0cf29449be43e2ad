// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	topology "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/process"
	"crane.io/crane/test/integration/harness"
)

// timeout bounds every wait. Awaited changes take a second or two on an idle machine. It is well below the five minutes
// after which the scheduler retries a pod on its own.
const timeout = 90 * time.Second

// eventually polls until check returns "" and fails with its last result.
func eventually(t testing.TB, what string, check func() string) {
	t.Helper()

	harness.Eventually(t.Context(), t, timeout, what, func(context.Context) error {
		if problem := check(); problem != "" {
			return errors.New(problem)
		}

		return nil
	})
}

// scheduler is a running crane-scheduler.
type scheduler struct {
	*process.Process
	name    string // name of its profile
	url     string // URL of its server
	control *controlplane.ControlPlane
}

// setup configures a scheduler. The zero value has both of Crane's plugins disabled.
type setup struct {
	control *controlplane.ControlPlane // nil: the shared one
	user    *controlplane.User         // nil: the service account of config/rbac
	name    string                     // of the profile; empty: the test's
	profile string                     // YAML of the profile below its name, indented by two blanks
	extra   string                     // YAML at the top of the file
	config  string                     // the whole file instead, with KUBECONFIG in it
}

// topologyProfile returns a profile with NodeResourceTopologyMatch and the given arguments in YAML's flow style.
func topologyProfile(args string) string {
	return `
  plugins:
    multiPoint:
      enabled:
      - name: NodeResourceTopologyMatch
        weight: 2
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args: ` + args + "\n"
}

// configure writes the configuration and returns the arguments of the process.
func configure(t testing.TB, s *setup) []string {
	t.Helper()

	if s.control == nil {
		s.control = control
	}

	if s.user == nil {
		account := controlplane.ServiceAccount("crane-system", "crane-scheduler")
		s.user = &account
	}

	if s.name == "" {
		s.name = strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	}

	kubeconfig, err := s.control.KubeconfigFor(t.Context(), s.name, *s.user)
	if err != nil {
		t.Fatal(err)
	}

	if s.config == "" {
		s.config = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" + s.extra +
			"leaderElection: {leaderElect: false}\nclientConnection: {kubeconfig: KUBECONFIG, qps: 500, burst: 1000}\n" +
			"profiles:\n- schedulerName: " + s.name + "\n" + s.profile
	}

	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(s.config, "KUBECONFIG", kubeconfig)), 0o600); err != nil {
		t.Fatal(err)
	}

	return []string{
		"--config=" + file, "--bind-address=127.0.0.1",
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
	}
}

// startScheduler runs crane-scheduler until the test ends and waits until it is ready to schedule.
func startScheduler(t testing.TB, s setup) *scheduler {
	t.Helper()

	args := configure(t, &s)
	address := harness.FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}

	p, err := process.Start(process.Spec{
		Name: "crane-scheduler", Path: binary, LastLines: 60, Args: append(args, "--secure-port="+port),
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last lines of crane-scheduler:\n%s", strings.Join(p.LastLines(), "\n"))
		}

		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()

		if err := p.Stop(ctx); err != nil {
			t.Errorf("stopping crane-scheduler: %v", err)
		}
	})

	out := &scheduler{Process: p, name: s.name, control: s.control, url: "https://" + address}
	eventually(t, "crane-scheduler is ready", func() string {
		select {
		case <-p.Done():
			t.Fatalf("crane-scheduler ended with %v, want it ready\n%s", p.Err(), strings.Join(p.LastLines(), "\n"))
		default:
		}

		body, err := out.get(t, "/readyz")
		if err != nil {
			return err.Error()
		}

		if body != "ok" {
			return body
		}

		// It serves before it has read the CA of client certificates; until then all clients are anonymous.
		if _, err := out.get(t, "/metrics"); err != nil {
			return err.Error()
		}

		return ""
	})

	return out
}

// get reads a path of the scheduler's server as cluster administrator.
func (s *scheduler) get(t testing.TB, path string) (string, error) {
	t.Helper()

	admin := s.control.Config()
	pair, err := tls.X509KeyPair(admin.CertData, admin.KeyData)
	if err != nil {
		t.Fatal(err)
	}

	c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}, // its certificate is made at the start
	}}

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}

	reply, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()

	body, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", reply.Status, body)
	}

	return string(body), err
}

// metric returns the value of a series of /metrics as text, or "".
func (s *scheduler) metric(t testing.TB, series string) string {
	t.Helper()

	body, err := s.get(t, "/metrics")
	if err != nil {
		t.Fatal(err)
	}

	value, _ := harness.SeriesValue(body, series)
	return value
}

// fixture manages the nodes and pods of one test, which have its name as a label.
type fixture struct {
	testing.TB
	client    kubernetes.Interface
	process   *scheduler
	scheduler string
	label     string
	// staleCaches means that nodes or topologies were created which may not be in the scheduler's caches yet.
	staleCaches bool
}

const fixtureLabel = "crane.io/test"

// newFixture removes the test's pods and nodes at its end.
func newFixture(t testing.TB, s *scheduler) *fixture {
	f := &fixture{TB: t, client: client, process: s, scheduler: s.name, label: s.name}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()

		selected := metav1.ListOptions{LabelSelector: fixtureLabel + "=" + f.label}
		now := int64(0)
		_ = f.client.CoreV1().Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, selected)
		_ = f.client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, selected)
	})

	return f
}

// node creates a node with that many CPUs, 64 GiB and room for 110 pods.
func (f *fixture) node(name string, cpus int64, annotations map[string]string) *corev1.Node {
	f.Helper()

	f.staleCaches = true
	has := corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}

	// The API server accepts the status on creation.
	n, err := f.client.CoreV1().Nodes().Create(f.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fixtureLabel: f.label}, Annotations: annotations},
		Status:     corev1.NodeStatus{Capacity: has, Allocatable: has},
	}, metav1.CreateOptions{})
	if err != nil {
		f.Fatal(err)
	}

	return n
}

// awaitCaches waits until the scheduler's caches contain all nodes and topologies, so that they count for the next pod.
func (f *fixture) awaitCaches() {
	f.Helper()

	if !f.staleCaches {
		return
	}

	f.staleCaches = false
	nodes, err := f.client.CoreV1().Nodes().List(f.Context(), metav1.ListOptions{})
	if err != nil {
		f.Fatal(err)
	}

	eventually(f, "the scheduler's cache contains the nodes", func() string {
		got := f.process.metric(f, `scheduler_cache_size{type="nodes"}`)
		if n, err := strconv.Atoi(got); err != nil || n < len(nodes.Items) {
			return fmt.Sprintf("it contains %q of %d", got, len(nodes.Items))
		}

		return ""
	})

	if f.process.metric(f, "crane_scheduler_topology_available") != "1" {
		return
	}

	var list topology.NodeResourceTopologyList
	if err := topologies(f, f.process.control.Config()).List(f.Context(), &list); err != nil {
		f.Fatal(err)
	}

	eventually(f, "the scheduler's cache contains the topologies", func() string {
		if got := f.process.metric(f, "crane_scheduler_topology_nodes"); got != strconv.Itoa(len(list.Items)) {
			return fmt.Sprintf("it contains %q of %d", got, len(list.Items))
		}

		return ""
	})
}

// pod creates a pod with this CPU request and limit that selects the test's nodes.
func (f *fixture) pod(name, cpu string, options ...func(*corev1.Pod)) *corev1.Pod {
	f.Helper()

	f.awaitCaches()
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	now := int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{fixtureLabel: f.label}},
		Spec: corev1.PodSpec{
			SchedulerName: f.scheduler, NodeSelector: map[string]string{fixtureLabel: f.label}, TerminationGracePeriodSeconds: &now,
			Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}},
		},
	}

	for _, o := range options {
		o(pod)
	}

	pod, err := f.client.CoreV1().Pods("default").Create(f.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		f.Fatal(err)
	}

	return pod
}

// setResult writes a topology result on a pod with an administrator's rights.
func (f *fixture) setResult(name, result string) {
	f.Helper()

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{topology.AnnotationPodTopologyResult: result}}})
	if err != nil {
		f.Fatal(err)
	}

	f.patch(name, string(patch))
}

func (f *fixture) patch(name, patch string) {
	f.Helper()

	if _, err := f.client.CoreV1().Pods("default").Patch(f.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) get(name string) *corev1.Pod {
	f.Helper()

	pod, err := f.client.CoreV1().Pods("default").Get(f.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}

	return pod
}

func (f *fixture) delete(name string) {
	f.Helper()

	now := int64(0)
	if err := f.client.CoreV1().Pods("default").Delete(f.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil && !apierrors.IsNotFound(err) {
		f.Fatal(err)
	}
}

// awaitPlaced waits until the pod is bound to a node and returns it.
func (f *fixture) awaitPlaced(name string) *corev1.Pod {
	f.Helper()

	var pod *corev1.Pod
	eventually(f, "pod "+name+" is on a node", func() string {
		if pod = f.get(name); pod.Spec.NodeName != "" {
			return ""
		}

		return "it is pending: " + unschedulable(pod)
	})

	return pod
}

// awaitPending waits until the scheduler has found no node for the pod, with that text in its reason.
func (f *fixture) awaitPending(name, reason string) {
	f.Helper()

	eventually(f, "pod "+name+" finds no node", func() string {
		pod := f.get(name)
		if pod.Spec.NodeName != "" {
			f.Fatalf("pod %s is on node %s, want none", name, pod.Spec.NodeName)
		}

		if got := unschedulable(pod); !strings.Contains(got, reason) {
			return fmt.Sprintf("want %q in the reason, got %q", reason, got)
		}

		return ""
	})
}

// unschedulable returns the message of the pod's condition PodScheduled if it is False.
func unschedulable(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}

	return ""
}
