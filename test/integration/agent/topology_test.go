// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/agent/cluster"
	agenthost "crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/topology"
	"crane.io/crane/internal/kube/topologyconv"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// configureKubelet replaces the kubelet's configuration file on a host.
func configureKubelet(t *testing.T, host, text string) {
	t.Helper()

	dir := filepath.Join(host, "var/lib/kubelet")
	next := filepath.Join(dir, "config.yaml.new")
	writeFile(t, next, "kind: KubeletConfiguration\n"+text)

	if err := os.Rename(next, filepath.Join(dir, "config.yaml")); err != nil {
		t.Fatal(err)
	}
}

func zonesClient(t *testing.T) client.Client {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := topologyv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	c, err := client.New(control.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// topologyOf waits for a NodeResourceTopology that passes the check.
func topologyOf(t *testing.T, c client.Client, node string, check func(*topologyv1alpha1.NodeResourceTopology) error) *topologyv1alpha1.NodeResourceTopology {
	t.Helper()

	out := &topologyv1alpha1.NodeResourceTopology{}
	eventually(t, "the NodeResourceTopology of "+node, func(ctx context.Context) error {
		out = &topologyv1alpha1.NodeResourceTopology{}
		if err := c.Get(ctx, client.ObjectKey{Name: node}, out); err != nil {
			return err
		}

		return check(out)
	})

	return out
}

func exists(*topologyv1alpha1.NodeResourceTopology) error { return nil }

// reserves returns a check of the number of reserved CPUs.
func reserves(n int32) func(*topologyv1alpha1.NodeResourceTopology) error {
	return func(o *topologyv1alpha1.NodeResourceTopology) error {
		var all int32
		for i := range o.Zones {
			all += o.Zones[i].Resources.ReservedCPUNums
		}

		if all != n {
			return fmt.Errorf("%d CPUs are reserved, want %d", all, n)
		}

		return nil
	}
}

// TestTopologyOfAProcess checks that the agent creates the object of its node, keeps it at its end, and that the next one applies a
// changed kubelet configuration.
func TestTopologyOfAProcess(t *testing.T) {
	c := newClient(t)
	zones := zonesClient(t)
	node := newNode("zones")
	harness.Create(t, c, node)
	h := recordedHost(t)
	configureKubelet(t, h, "kubeReserved: {cpu: \"1\"}\n")
	alone := startAgent(t, "zones", "--feature-gates=NodeResourceTopology=true", "--enforce=cpu-throttle", "--host-root="+h)

	if o := topologyOf(t, zones, "zones", reserves(1)); o.CraneManagerPolicy.CPUManagerPolicy != topologyv1alpha1.CPUManagerPolicyNone {
		t.Errorf("policy %+v, want none: nothing assigns CPUs", o.CraneManagerPolicy)
	}
	if err := alone.Terminate(t); err != nil {
		t.Error(err)
	}

	writeFile(t, filepath.Join(h, podsGroup, "cpuset.cpus"), "\n") // the recording has no CPU lists
	writeFile(t, filepath.Join(h, podsGroup, "cpuset.cpus.effective"), "0-3\n")
	flags := []string{"--feature-gates=NodeResourceTopology=true,CraneCPUManager=true", "--enforce=cpu-throttle,cpu-manager", "--host-root=" + h}
	a := startAgent(t, "zones", flags...)

	o := topologyOf(t, zones, "zones", func(o *topologyv1alpha1.NodeResourceTopology) error {
		if o.CraneManagerPolicy.CPUManagerPolicy != topologyv1alpha1.CPUManagerPolicyStatic {
			return fmt.Errorf("policy %+v", o.CraneManagerPolicy)
		}

		return reserves(1)(o)
	})

	t.Cleanup(func() { harness.Delete(t, zones, o) })
	if len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != node.UID {
		t.Errorf("NodeResourceTopology %+v, want the Node as its owner", o)
	}

	// As the scheduler's plugin reads it.
	read, err := topologyconv.ReadZones(o)
	if err != nil || len(read) != 2 || read[0].Name != "node0" || read[1].Name != "node2" || len(read[0].Usable) < 2 || len(read[0].Distances) != 2 {
		t.Errorf("ReadZones() = %+v, %v, want node0 and node2 with distances", read, err)
	}

	if err := a.Terminate(t); err != nil {
		t.Error(err)
	}
	if now := topologyOf(t, zones, "zones", reserves(1)); now.ResourceVersion != o.ResourceVersion {
		t.Errorf("at the end the object is %+v, want it unchanged", now)
	}

	configureKubelet(t, h, "kubeReserved: {cpu: \"2\"}\ncpuManagerPolicy: static\n")
	startAgent(t, "zones", flags...)

	o = topologyOf(t, zones, "zones", reserves(2))
	if o.CraneManagerPolicy.CPUManagerPolicy != topologyv1alpha1.CPUManagerPolicyNone {
		t.Errorf("policy %+v, want none: the kubelet's policy is static", o.CraneManagerPolicy)
	}
}

// topologyFixture runs the topology manager with the agent's permissions and a fake clock.
type topologyFixture struct {
	*topology.Manager

	t     *testing.T
	zones client.Client
	clock *clocktesting.FakeClock
	host  string
	node  *corev1.Node

	mu  sync.Mutex
	log strings.Builder
}

// view returns the Node only.
func (f *topologyFixture) view() cluster.View { return cluster.NewStatic(cluster.State{Node: f.node}) }

func newTopologyFixture(t *testing.T, name string) *topologyFixture {
	t.Helper()

	c := newClient(t)
	f := &topologyFixture{t: t, zones: zonesClient(t), clock: clocktesting.NewFakeClock(time.Now()), host: recordedHost(t), node: newNode(name)}
	harness.Create(t, c, f.node)
	configureKubelet(t, f.host, "kubeReserved: {cpu: \"1\"}\n")
	f.start(f.view())
	t.Cleanup(func() {
		harness.Delete(t, f.zones, &topologyv1alpha1.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: name}})
	})

	return f
}

func (f *topologyFixture) start(view cluster.View) {
	f.t.Helper()

	config, err := control.ConfigFor(f.t.Context(), controlplane.ServiceAccount("crane-system", "crane-agent"))
	if err != nil {
		f.t.Fatal(err)
	}

	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		f.t.Fatal(err)
	}

	f.Manager = topology.NewManager(topology.Config{
		Root: agenthost.Root(f.host), KubeletDir: "/var/lib/kubelet", View: view, Dynamic: objects, NodeName: f.node.Name, Clock: f.clock, Beat: func(string) {},
		Report: func(report.Action) {},
		Log: funcr.New(func(_, args string) {
			f.mu.Lock()
			defer f.mu.Unlock()

			f.log.WriteString(args + "\n")
		}, funcr.Options{}),
	})
}

func (f *topologyFixture) pass(d time.Duration) {
	f.clock.Step(d)
	f.Reconcile(f.t.Context())
}

func (f *topologyFixture) logged(text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	return strings.Contains(f.log.String(), text)
}

func (f *topologyFixture) object() *topologyv1alpha1.NodeResourceTopology {
	f.t.Helper()
	return topologyOf(f.t, f.zones, f.node.Name, exists)
}

// TestTopologyIsWrittenOnChange checks that an hour without changes writes nothing, and that labels, reservations and changes by others
// do.
func TestTopologyIsWrittenOnChange(t *testing.T) {
	f := newTopologyFixture(t, "zones-quiet")
	f.Reconcile(t.Context())
	made := f.object()

	for range 60 {
		f.pass(time.Minute)
	}

	if now := f.object(); now.ResourceVersion != made.ResourceVersion || now.Generation != made.Generation {
		t.Errorf("without a change the object is %+v, want it not written", now)
	}

	f.node.Labels[topologyv1alpha1.LabelNodeTopologyAwareness] = "false"
	f.pass(10 * time.Second)

	if o := f.object(); o.CraneManagerPolicy.TopologyManagerPolicy != topologyv1alpha1.TopologyManagerPolicyNone || o.ResourceVersion == made.ResourceVersion {
		t.Errorf("policy %+v, want none after the label", o.CraneManagerPolicy)
	}

	configureKubelet(t, f.host, "reservedSystemCPUs: 0-1\n")
	f.pass(10 * time.Second)

	o := f.object()
	if o.Attributes[topologyv1alpha1.AttributeReservedSystemCPUs] != "0-1" || o.Reserved.Cpu().Value() != 2 {
		t.Errorf("object %+v, want CPUs 0-1 reserved", o)
	}

	// Another client adds an attribute and removes a zone.
	o.Attributes["example.com/rack"] = "7"
	o.Zones = o.Zones[:1]
	if err := f.zones.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}

	f.pass(time.Hour)
	if o := f.object(); len(o.Zones) != 2 || o.Attributes["example.com/rack"] != "7" || !f.logged("after a change by another client") {
		t.Errorf("object %+v, want two zones and the attribute of another client", o)
	}

	configureKubelet(t, f.host, "kubeReserved: {memory: 1Gi}\n")
	f.pass(2 * time.Hour)

	if o := f.object(); len(o.Attributes) != 1 || !o.Reserved.Cpu().IsZero() || o.Reserved.Memory().IsZero() {
		t.Errorf("object %+v, want 1Gi of memory reserved and no CPUs", o)
	}
}

// TestTopologyOfAnother checks that an object of another owner is kept and reported.
func TestTopologyOfAnother(t *testing.T) {
	f := newTopologyFixture(t, "zones-foreign")
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "3c9e2c4e-0000-4000-8000-000000000000", Controller: new(true)}
	foreign := &topologyv1alpha1.NodeResourceTopology{
		ObjectMeta:         metav1.ObjectMeta{Name: f.node.Name, OwnerReferences: []metav1.OwnerReference{owner}},
		CraneManagerPolicy: topologyv1alpha1.ManagerPolicy{CPUManagerPolicy: topologyv1alpha1.CPUManagerPolicyNone, TopologyManagerPolicy: topologyv1alpha1.TopologyManagerPolicyNone},
	}

	if err := f.zones.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}

	for range 10 {
		f.pass(time.Minute)
	}

	if o := f.object(); o.ResourceVersion != foreign.ResourceVersion || !f.logged("has another controller") {
		t.Errorf("object %+v, want it untouched: it has another controller", o)
	}
}

// TestTopologyWithoutItsKind checks that a missing definition is reported, and that the object is created soon after its installation.
func TestTopologyWithoutItsKind(t *testing.T) {
	f := newTopologyFixture(t, "zones-kind")
	definitions := definitionsClient(t)
	const name = "noderesourcetopologies.topology.crane.io"
	restore := uninstall(t, definitions, name)

	eventually(t, "the agent says that the definition is missing", func(ctx context.Context) error {
		f.pass(time.Hour)
		if !f.logged("CustomResourceDefinition is not installed") {
			return errors.New("it does not")
		}

		_, err := definitions.Get(ctx, name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return errors.New("the definition is still going")
		}

		return nil
	})

	restore()
	eventually(t, "the object is made", func(ctx context.Context) error {
		f.pass(10 * time.Minute)
		return f.zones.Get(ctx, client.ObjectKey{Name: f.node.Name}, &topologyv1alpha1.NodeResourceTopology{})
	})
}

func definitionsClient(t *testing.T) dynamic.ResourceInterface {
	t.Helper()

	c, err := dynamic.NewForConfig(control.Config())
	if err != nil {
		t.Fatal(err)
	}

	return c.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
}

// uninstall deletes a definition and returns the function that installs it again, at the end of the test at the latest.
func uninstall(t *testing.T, definitions dynamic.ResourceInterface, name string) (restore func()) {
	t.Helper()

	crd, err := definitions.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if err := definitions.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	restore = sync.OnceFunc(func() { install(t, definitions, crd) })
	t.Cleanup(restore)
	return restore
}

// install installs a deleted definition again and waits until its kind is served, because later tests need it.
func install(t *testing.T, definitions dynamic.ResourceInterface, crd *unstructured.Unstructured) {
	t.Helper()

	ctx := context.WithoutCancel(t.Context())
	again := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": crd.GetAPIVersion(), "kind": crd.GetKind(), "spec": crd.Object["spec"],
		"metadata": map[string]any{"name": crd.GetName(), "annotations": crd.Object["metadata"].(map[string]any)["annotations"]},
	}}
	kind := schema.GroupVersionKind{Version: "v1alpha1"}
	var err1, err2 error

	kind.Group, _, err1 = unstructured.NestedString(crd.Object, "spec", "group")
	kind.Kind, _, err2 = unstructured.NestedString(crd.Object, "spec", "names", "listKind")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}

	harness.Eventually(ctx, t, waitTimeout, kind.Group+" is served again", func(ctx context.Context) error {
		if _, err := definitions.Create(ctx, again, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}

		// A definition being deleted is still served for a while.
		now, err := definitions.Get(ctx, crd.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}

		if now.GetDeletionTimestamp() != nil {
			return errors.New("the definition of before is still going")
		}

		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		return newClient(t).List(ctx, list)
	})
}
