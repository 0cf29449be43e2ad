// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simnode_test runs the simulated nodes against a real API server, controller manager and scheduler.
package simnode_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/simnode"
	"crane.io/crane/internal/testbed/simnode/tunnel"
	"crane.io/crane/test/integration/harness"
	"crane.io/crane/test/integration/harness/fleet"
)

// cluster contains what all tests of the package share.
var cluster struct {
	plane  *controlplane.ControlPlane
	config *rest.Config
	client kubernetes.Interface
	fleet  *simnode.Fleet
	load   *podLoad
	// dir contains the tunnel's socket; stop stops the fleet.
	dir  string
	stop func() error
}

// podLoad is a load that tests set by namespace and container.
type podLoad struct {
	mu  sync.Mutex
	set map[string]simnode.Use
}

// Use implements simnode.Load; the default is 0.1 core and 20 MiB.
func (l *podLoad) Use(pod *corev1.Pod, container string, _ time.Time) simnode.Use {
	l.mu.Lock()
	defer l.mu.Unlock()

	if u, ok := l.set[pod.Namespace+"/"+container]; ok {
		return u
	}

	return simnode.Use{CPU: 0.1, Memory: 20 << 20, Known: true}
}

func (l *podLoad) use(namespace, container string, cpu, memory float64) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.set[namespace+"/"+container] = simnode.Use{CPU: cpu, Memory: memory, Known: true}
}

// pools returns the nodes; each test uses those of its own pool.
func pools() []simnode.NodeSpec {
	node := func(name, pool, cpu, memory string) simnode.NodeSpec {
		return simnode.NodeSpec{
			Name: name, CPU: resource.MustParse(cpu), Memory: resource.MustParse(memory),
			Labels: map[string]string{"pool": pool},
		}
	}

	static := node("static", "static", "4", "8Gi")
	static.StaticCPU = true
	return []simnode.NodeSpec{
		node("general-1", "general", "8", "16Gi"), node("general-2", "general", "8", "16Gi"), node("tight", "tight", "2", "4Gi"),
		node("small", "small", "4", "1Gi"), node("frail", "frail", "4", "4Gi"), node("sound", "frail", "4", "4Gi"), static,
	}
}

func TestMain(m *testing.M) {
	fast := []string{
		"--node-monitor-grace-period=6s", "--node-monitor-period=1s", "--horizontal-pod-autoscaler-sync-period=2s",
		"--horizontal-pod-autoscaler-initial-readiness-delay=1s", "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
	}
	plane := controlplane.Options{
		Components: []controlplane.Component{controlplane.ControllerManager, controlplane.Scheduler},
		ExtraArgs:  map[controlplane.Component][]string{controlplane.ControllerManager: fast},
	}

	os.Exit(harness.Main(m, harness.Suite{
		Name: "simnode", Plane: plane, Kinds: harness.Nothing,
		Before: func(ctx context.Context, dir string) error {
			// The API server reads the tunnel's configuration at its start; the fleet serves the tunnel later.
			nodes, err := tunnel.Open(ctx, dir)
			if err != nil {
				return err
			}

			cluster.dir = dir
			plane.ExtraArgs[controlplane.APIServer] = nodes.APIServerArgs()
			return nodes.Close()
		},
		Beside: func(_ context.Context, c *controlplane.ControlPlane) (func() error, error) {
			return stopFleet, start(c)
		},
	}))
}

// stopFleet stops the fleet unless a test failed to start it again.
func stopFleet() error {
	if cluster.stop == nil {
		return errors.New("the simulated nodes are not running")
	}

	return cluster.stop()
}

// serving returns the certificates of the endpoints, issued by the control plane.
func serving(c *controlplane.ControlPlane) (*simnode.Serving, error) {
	file, names := c.FrontProxy()
	frontProxy, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}

	s := &simnode.Serving{CA: c.CAPEM(), ClientCA: x509.NewCertPool(), FrontProxyCA: x509.NewCertPool(), FrontProxyNames: names, Metrics: true}
	if !s.ClientCA.AppendCertsFromPEM(c.CAPEM()) || !s.FrontProxyCA.AppendCertsFromPEM(frontProxy) {
		return nil, fmt.Errorf("no certificate in the authorities of the control plane")
	}

	s.Cert = func(hosts ...string) (tls.Certificate, error) {
		cert, key, err := c.IssueServing(hosts...)
		if err != nil {
			return tls.Certificate{}, err
		}

		return tls.X509KeyPair(cert, key)
	}

	return s, nil
}

// start sets the variables that the tests share and runs the fleet.
func start(c *controlplane.ControlPlane) (err error) {
	cluster.plane = c
	cluster.config = c.Config()
	cluster.load = &podLoad{set: map[string]simnode.Use{}}
	if cluster.client, err = kubernetes.NewForConfig(cluster.config); err != nil {
		return err
	}

	return run()
}

// run runs a fleet and waits until it is ready.
func run() error {
	identities, err := serving(cluster.plane)
	if err != nil {
		return err
	}

	if identities.Tunnel, err = tunnel.Open(context.Background(), cluster.dir); err != nil {
		return err
	}

	timing := simnode.DefaultTiming()
	timing.PressureHold = 3 * time.Second
	cluster.fleet, cluster.stop, err = fleet.Start(context.Background(), simnode.Config{
		Client: cluster.config, Nodes: pools(), Load: cluster.load, Serving: identities, Timing: timing,
		Sample: 500 * time.Millisecond, Heartbeat: time.Second,
	})

	return err
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, ok func(ctx context.Context) (bool, string)) {
	t.Helper()

	harness.Eventually(t.Context(), t, time.Minute, what, func(ctx context.Context) error {
		if done, state := ok(ctx); !done {
			return errors.New(state)
		}

		return nil
	})
}

// namespaceFor creates a namespace for the test.
func namespaceFor(t *testing.T) string {
	t.Helper()

	ns, err := cluster.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "sim-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()

		if err := cluster.client.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting namespace %s: %v", ns.Name, err)
		}
	})

	return ns.Name
}

// podIn creates a Guaranteed pod with one container "app" in the pool.
func podIn(namespace, name, pool, cpu, memory string, edit ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"pool": pool},
			Containers: []corev1.Container{{
				Name: "app", Image: "example.com/app:1",
				Resources: corev1.ResourceRequirements{Requests: harness.ResourceList(cpu, memory), Limits: harness.ResourceList(cpu, memory)},
			}},
		},
	}

	for _, f := range edit {
		f(pod)
	}

	return pod
}

func create(t *testing.T, pod *corev1.Pod) {
	t.Helper()

	// The service account of a new namespace is created with a delay.
	eventually(t, "create pod "+pod.Name, func(ctx context.Context) (bool, string) {
		_, err := cluster.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// podUntil polls a pod until the condition holds and returns it.
func podUntil(t *testing.T, namespace, name, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()

	var pod *corev1.Pod
	eventually(t, "pod "+name+": "+what, func(ctx context.Context) (bool, string) {
		var err error
		if pod, err = cluster.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}

		return ok(pod), fmt.Sprintf("%+v", pod.Status)
	})

	return pod
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}

	return nil
}

func ready(pod *corev1.Pod) bool {
	c := condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}
