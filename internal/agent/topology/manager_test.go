// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/ruleset"
)

// fixture is a manager with a fake API server.
type fixture struct {
	*Manager

	t      *testing.T
	client *fake.FakeDynamicClient
	clock  *testingclock.FakeClock
	root   host.Root
	node   *corev1.Node
	log    []string
}

func newFixture(t *testing.T, change func(*Config)) *fixture {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := topologyv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	files := twoZoneFiles()
	files["var/lib/kubelet/config.yaml"] = "kind: KubeletConfiguration\nkubeReserved: {cpu: \"1\"}\n"
	b := &fixture{
		t: t, client: fake.NewSimpleDynamicClient(scheme), clock: testingclock.NewFakeClock(time.Unix(1000, 0)), root: writeHost(t, files),
		node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid"}},
	}

	c := Config{
		Root: b.root, KubeletDir: kubeletDir, View: b, Dynamic: b.client, NodeName: "n", PinsCPUs: true, Clock: b.clock, Beat: func(string) {},
		Report: func(a report.Action) { b.log = append(b.log, string(a.Outcome)+" "+a.Reason+" "+a.To) },
		Log:    funcr.New(func(_, args string) { b.log = append(b.log, args) }, funcr.Options{}),
	}

	if change != nil {
		change(&c)
	}

	b.Manager = NewManager(c)
	return b
}

func (b *fixture) Node() *corev1.Node { return b.node }

func (b *fixture) Pods() []*corev1.Pod { return nil }

// advance moves the clock, reconciles and returns the verbs of the requests, such as "get create".
func (b *fixture) advance(after time.Duration) string {
	b.client.ClearActions()
	b.clock.Step(after)
	b.Reconcile(b.t.Context())

	var verbs []string
	for _, a := range b.client.Actions() {
		verbs = append(verbs, a.GetVerb())
	}

	return strings.Join(verbs, " ")
}

func (b *fixture) readObject() *topologyv1alpha1.NodeResourceTopology {
	b.t.Helper()

	raw, err := b.Manager.object.resource().Get(b.t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}

	out := &topologyv1alpha1.NodeResourceTopology{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, out); err != nil {
		b.t.Fatal(err)
	}

	return out
}

// updateObject changes the object as another client.
func (b *fixture) updateObject(change func(*topologyv1alpha1.NodeResourceTopology)) {
	b.t.Helper()

	o := b.readObject()
	change(o)

	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		b.t.Fatal(err)
	}

	if _, err := b.Manager.object.resource().Update(b.t.Context(), &unstructured.Unstructured{Object: raw}, metav1.UpdateOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *fixture) logged(text string) bool { return strings.Contains(strings.Join(b.log, "\n"), text) }

func (b *fixture) setKubeletConfig(text string) {
	b.t.Helper()
	b.kubelet.Root = writeHost(b.t, map[string]string{"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n" + text})
}

// TestObject checks that the object is created once and written only after changes.
func TestObject(t *testing.T) {
	b := newFixture(t, nil)
	if got := b.advance(0); got != "get create" {
		t.Fatalf("the first step sent %q, want %q; log %v", got, "get create", b.log)
	}

	o := b.readObject()
	if len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != "node-uid" || o.OwnerReferences[0].Kind != "Node" || !*o.OwnerReferences[0].Controller {
		t.Errorf("owners are %+v, want the node as controller", o.OwnerReferences)
	}
	if len(o.Zones) != 2 || o.Zones[0].Resources.ReservedCPUNums != 1 || o.CraneManagerPolicy.CPUManagerPolicy != "Static" {
		t.Errorf("the object is %+v, want two zones, a reserved CPU in the first, and policy Static", o)
	}

	for range 10 {
		if got := b.advance(readInterval); got != "" {
			t.Errorf("an unchanged node sent %q, want no request", got)
		}
	}

	b.setKubeletConfig("kubeReserved: {cpu: 1000m}\n")
	if got := b.advance(readInterval); got != "get" && got != "" {
		t.Errorf("an equal configuration sent %q, want no write", got)
	}

	b.setKubeletConfig("kubeReserved: {cpu: \"2\"}\nreservedSystemCPUs: 4-5\n")
	if got := b.advance(readInterval); got != "get patch" {
		t.Fatalf("another reservation sent %q, want %q; log %v", got, "get patch", b.log)
	}

	if o := b.readObject(); o.Zones[0].Resources.ReservedCPUNums != 0 || o.Zones[1].Resources.ReservedCPUNums != 2 || o.Attributes[topologyv1alpha1.AttributeReservedSystemCPUs] != "4-5" {
		t.Errorf("the object is %+v, want reserved CPUs 4-5, both in the second zone", o)
	}

	// Attributes of other clients stay; a removed reservation is removed.
	b.updateObject(func(o *topologyv1alpha1.NodeResourceTopology) { o.Attributes["example.com/rack"] = "7" })
	b.setKubeletConfig("kubeReserved: {memory: 1Gi}\n")

	if got := b.advance(readInterval); got != "get patch" {
		t.Fatalf("a removed reservation sent %q, want %q", got, "get patch")
	}

	o = b.readObject()
	if _, reserved := o.Reserved["cpu"]; reserved || fmt.Sprint(o.Attributes) != "map[example.com/rack:7]" {
		t.Errorf("reserved %v, attributes %v; want no CPU and only the attribute of another client", o.Reserved, o.Attributes)
	}

	b.node = b.node.DeepCopy()
	b.node.Labels = map[string]string{topologyv1alpha1.LabelNodeTopologyAwareness: "false"}
	if got := b.advance(readInterval); got != "get patch" || b.readObject().CraneManagerPolicy.TopologyManagerPolicy != "None" {
		t.Errorf("the label sent %q, want %q and policy None", got, "get patch")
	}

	b.node.UID = "another" // The Node was recreated before the object was garbage collected.
	if got := b.advance(readInterval); got != "get patch" || b.readObject().OwnerReferences[0].UID != "another" || len(b.readObject().OwnerReferences) != 1 {
		t.Errorf("a recreated node sent %q with owners %+v, want %q and only the new node", got, b.readObject().OwnerReferences, "get patch")
	}
}

// TestComesBack checks that a deleted object is recreated.
func TestComesBack(t *testing.T) {
	b := newFixture(t, nil)
	b.advance(0)

	if err := b.Manager.object.resource().Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	if got := b.advance(resyncInterval + time.Minute); got != "get create" {
		t.Errorf("a deleted object sent %q, want %q", got, "get create")
	}
}

// TestOtherOwner checks that an object with another controller is not changed.
func TestOtherOwner(t *testing.T) {
	b := newFixture(t, nil)
	b.advance(0)
	b.updateObject(func(o *topologyv1alpha1.NodeResourceTopology) {
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "n", UID: "x", Controller: new(true)}}
		o.Zones = nil
	})

	if got := b.advance(resyncInterval + time.Minute); got != "get" || !b.logged("has another controller") || len(b.readObject().Zones) != 0 {
		t.Errorf("an object of another controller sent %q, log %v; want only %q", got, b.log, "get")
	}
}

// TestConflictBackoff checks the backoff while another client keeps changing the object.
func TestConflictBackoff(t *testing.T) {
	b := newFixture(t, nil)
	b.advance(0)

	patches := 0
	for range 6 * 12 { // six hours
		b.updateObject(func(o *topologyv1alpha1.NodeResourceTopology) { o.Zones = nil })
		if strings.Contains(b.advance(resyncInterval), "patch") {
			patches++
		}
	}

	if patches < 4 || patches > 12 || !b.logged("after a change by another client") {
		t.Errorf("%d patches in six hours, log %v; want 4 to 12 and a message about the other client", patches, b.log)
	}

	for range 3 * 12 {
		b.advance(resyncInterval)
	}

	if len(b.readObject().Zones) != 2 || b.conflictBackoff != 0 {
		t.Errorf("afterward the backoff is %s and the zones are %+v, want no backoff and two zones", b.conflictBackoff, b.readObject().Zones)
	}
}

// TestNoDefinition checks that a missing CustomResourceDefinition is logged once and retried with backoff.
func TestNoDefinition(t *testing.T) {
	b := newFixture(t, nil)
	missing := true
	b.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return missing, nil, apierrors.NewNotFound(schema.GroupResource{Group: "topology.crane.io", Resource: "noderesourcetopologies"}, "n")
	})

	tries := 0
	for range 120 { // an hour
		if b.advance(3*readInterval) != "" {
			tries++
		}
	}

	if logged := strings.Count(strings.Join(b.log, "\n"), "CustomResourceDefinition is not installed"); logged != 1 || tries < 8 || tries > 20 {
		t.Errorf("the missing definition was logged %d times in %d tries, want once in 8 to 20", logged, tries)
	}

	missing = false
	for range 11 {
		b.advance(time.Minute)
	}

	if len(b.readObject().Zones) != 2 {
		t.Error("the object has no zones, want it to be created once the definition exists")
	}
}

// TestConflict checks that a conflicting write is retried at once.
func TestConflict(t *testing.T) {
	b := newFixture(t, nil)
	b.advance(0)
	once := true
	b.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		defer func() { once = false }()

		return once, nil, apierrors.NewConflict(schema.GroupResource{}, "n", errors.New("changed"))
	})

	b.setKubeletConfig("kubeReserved: {cpu: \"3\"}\n")

	if got := b.advance(readInterval) + " " + b.advance(readInterval); got != "get patch get patch" {
		t.Errorf("a conflict sent %q, want two comparisons and patches", got)
	}
}

func TestDryRun(t *testing.T) {
	b := newFixture(t, func(c *Config) { c.DryRun = true })
	for range 30 {
		if got := b.advance(time.Minute); got != "" && got != "get" {
			t.Fatalf("a dry run sent %q, want at most a get", got)
		}
	}

	if logged := strings.Count(strings.Join(b.log, "\n"), "would the NodeResourceTopology does not exist node0: cpu 6 of 7, node2: cpu 7 of 7"); logged != 1 {
		t.Errorf("a dry run logged its write %d times, want once: %s", logged, strings.Join(b.log, "\n"))
	}
}

// TestUnknown checks that nothing is written without the kubelet's configuration, and that the last topology stays published.
func TestUnknown(t *testing.T) {
	b := newFixture(t, nil)
	b.kubelet.Root = writeHost(t, nil)
	if got := b.advance(0); got != "" || b.Latest() != nil || !b.logged("reading the node's topology") {
		t.Errorf("requests %q, log %v; want none, no topology and a logged failure", got, b.log)
	}

	b.setKubeletConfig("")
	if got := b.advance(readInterval); got != "get create" || b.Latest() == nil {
		t.Errorf("once the configuration is known the step sent %q, want %q", got, "get create")
	}

	known := b.Latest()
	b.setKubeletConfig("")
	b.advance(readInterval)

	if b.Latest() != known {
		t.Error("Latest() is another pointer, want the same while nothing changes")
	}

	b.kubelet.Root = writeHost(t, nil)
	b.advance(readInterval)

	if b.Latest() != known {
		t.Error("Latest() is another pointer, want the last topology while the configuration is unknown")
	}

	b.node = nil
	b.setKubeletConfig("kubeReserved: {cpu: \"3\"}\n")

	if got := b.advance(time.Hour); got != "" {
		t.Errorf("without a node the step sent %q, want no request", got)
	}
}

func TestRunEnds(t *testing.T) {
	b := newFixture(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- b.Run(ctx) }()
	cancel()

	if err := <-done; err != nil {
		t.Error(err)
	}
}

var _ cluster.View = (*fixture)(nil)

func (b *fixture) Rules() ruleset.Set { return ruleset.Set{} }
