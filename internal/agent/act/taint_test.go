// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

var others = []corev1.Taint{
	{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule},
	{Key: ensurancev1alpha1.TaintKey, Effect: corev1.TaintEffectNoExecute, Value: "other"},
}

func calmNode() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7"}, Spec: corev1.NodeSpec{Taints: slices.Clone(others)}}
}

func newTainter(t *testing.T, node *corev1.Node) (*Tainter, *fake.Clientset, *clocktesting.FakeClock) {
	t.Helper()

	client := fake.NewClientset(node)
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC))
	return NewTainter(TainterConfig{
		Name: "n", Nodes: client.CoreV1().Nodes(), Node: func() *corev1.Node { return stored(t, client) }, Clock: clk, Log: logr.Discard(),
		Beat: func(string) {},
	}), client, clk
}

func stored(t *testing.T, client *fake.Clientset) *corev1.Node {
	t.Helper()

	o, err := client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", "n")
	if err != nil {
		t.Error(err)
		return nil
	}

	return o.(*corev1.Node).DeepCopy()
}

func conditionOf(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == ensurancev1alpha1.ConditionInterferenceIdentified {
			return &node.Status.Conditions[i]
		}
	}

	return nil
}

// patches returns the patches so far by subresource.
func patches(client *fake.Clientset) (spec, status []string) {
	for _, a := range client.Actions() {
		if p, ok := a.(clienttesting.PatchAction); ok && p.GetSubresource() == "status" {
			status = append(status, string(p.GetPatch()))
		} else if ok {
			spec = append(spec, string(p.GetPatch()))
		}
	}

	return spec, status
}

// TestTaintAndBack checks that other taints are kept, that an unchanged state costs no request and that the condition keeps its transition
// time.
func TestTaintAndBack(t *testing.T) {
	tainter, client, clk := newTainter(t, calmNode())
	began := clk.Now()
	sync := func(want bool, why string) bool {
		t.Helper()

		changed, err := tainter.Sync(t.Context(), stored(t, client), want, why)
		if err != nil {
			t.Fatal(err)
		}

		return changed
	}

	if sync(false, "no rule has fired") || len(client.Actions()) > 0 {
		t.Errorf("Sync of a calm node sent %v, want no request and no change", client.Actions())
	}
	if !sync(true, "rule a/b is firing") {
		t.Error("Sync that taints = false, want a reported change")
	}

	node := stored(t, client)
	if !IsTainted(node) || len(node.Spec.Taints) != 3 || !slices.Equal(node.Spec.Taints[:2], others) {
		t.Errorf("taints are %+v, want ours after the two of others", node.Spec.Taints)
	}

	c := conditionOf(node)
	if c == nil || c.Status != corev1.ConditionTrue || c.Reason != "RuleFires" || c.Message != "rule a/b is firing" || !c.LastTransitionTime.Time.Equal(began) {
		t.Fatalf("the condition is %+v, want True with reason RuleFires, the rule as message, and the time of the change", c)
	}

	spec, _ := patches(client)
	var body struct {
		Metadata struct{ UID, ResourceVersion string }
	}

	if err := json.Unmarshal([]byte(spec[0]), &body); err != nil || body.Metadata.ResourceVersion != "7" || body.Metadata.UID != "u" {
		t.Errorf("the patch is %s, want the node's UID and resource version", spec[0])
	}

	client.ClearActions()
	clk.Step(10 * time.Second)

	if sync(true, "rule a/b is falling") || len(client.Actions()) > 0 {
		t.Errorf("Sync with another message after 10s sent %v, want no request and no change", client.Actions())
	}

	clk.Step(time.Minute)
	if sync(true, "rule a/b cools down") {
		t.Error("Sync with another message = true, want no reported change of the taint")
	}
	if c := conditionOf(stored(t, client)); c.Message != "rule a/b cools down" || !c.LastTransitionTime.Time.Equal(began) || c.LastHeartbeatTime.Time.Equal(began) {
		t.Errorf("the condition is %+v, want the new message and heartbeat and the old time of transition", c)
	}
	if !sync(false, "no rule has fired") {
		t.Error("Sync that removes the taint = false, want a reported change")
	}

	node = stored(t, client)
	if !slices.Equal(node.Spec.Taints, others) {
		t.Errorf("taints are %+v, want only those of others", node.Spec.Taints)
	}
	if c := conditionOf(node); c.Status != corev1.ConditionFalse || c.Reason != "NoRuleFires" || c.LastTransitionTime.Time.Equal(began) {
		t.Errorf("the condition is %+v, want False with reason NoRuleFires and a new time of transition", c)
	}

	client.ClearActions()
	if sync(false, "something else") || len(client.Actions()) > 0 {
		t.Errorf("Sync of a node in its desired state sent %v, want no request and no change", client.Actions())
	}
}

// TestTaintConflict checks that a taint set between read and write is not lost.
func TestTaintConflict(t *testing.T) {
	tainter, client, _ := newTainter(t, calmNode())
	theirs := corev1.Taint{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}
	overtaken := false

	client.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if overtaken || a.GetSubresource() != "" {
			return false, nil, nil
		}

		overtaken = true
		node := calmNode()
		node.ResourceVersion, node.Spec.Taints = "8", append(node.Spec.Taints, theirs)
		if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
			t.Error(err)
		}

		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n", errors.New("modified"))
	})

	if changed, err := tainter.Sync(t.Context(), calmNode(), true, "why"); err != nil || !changed {
		t.Errorf("Sync = %t, %v, want a reported change", changed, err)
	}

	node := stored(t, client)
	if !IsTainted(node) || !slices.Contains(node.Spec.Taints, theirs) || conditionOf(node) == nil {
		t.Errorf("the node is %+v, want our taint, the concurrent one and the condition", node)
	}
}

// TestTaintFails checks that a failed patch does not prevent the other and is returned.
func TestTaintFails(t *testing.T) {
	for _, sub := range []string{"", "status"} {
		tainter, client, _ := newTainter(t, calmNode())
		client.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return a.GetSubresource() == sub, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New("no right"))
		})

		changed, err := tainter.Sync(t.Context(), nil, true, "why")
		node := stored(t, client)
		if !apierrors.IsForbidden(err) || changed != (sub == "status") || IsTainted(node) != (sub == "status") || (conditionOf(node) != nil) != (sub == "") {
			t.Errorf("subresource %q forbidden: Sync = %t, %v with node %+v, want an error and the other write", sub, changed, err, node)
		}
	}
}

// TestTaintReportedOnce checks that writes with a lost answer or a conflicting condition are reported once as changes, and changes by
// others are not.
func TestTaintReportedOnce(t *testing.T) {
	tainter, client, _ := newTainter(t, calmNode())
	lost := true
	overtaken := false

	client.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		switch {
		case lost && a.GetSubresource() == "":
			lost = false
			node := stored(t, client)
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: ensurancev1alpha1.TaintKey, Effect: corev1.TaintEffectPreferNoSchedule})
			if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
				t.Error(err)
			}

			return true, nil, context.DeadlineExceeded

		case overtaken && a.GetSubresource() == "status":
			overtaken = false
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n", errors.New("modified"))
		}

		return false, nil, nil
	})

	var reports []TaintOutcome
	tainter.cfg.Report = func(o TaintOutcome) { reports = append(reports, o) }
	bring := func(what string, want, fails bool) {
		t.Helper()

		if err := tainter.apply(t.Context(), stored(t, client), &taintState{want, what}); (err != nil) != fails {
			t.Errorf("apply %s = %v, want an error: %t", what, err, fails)
		}
	}

	bring("the answer is lost", true, true)
	bring("it is there", true, false)
	bring("it still is", true, false)
	overtaken = true
	bring("the condition is overtaken", false, false)
	bring("calm", false, false)

	var changes []bool
	for _, o := range reports {
		if o.Err == nil {
			changes = append(changes, o.Avoided)
		}
	}

	if !slices.Equal(changes, []bool{true, false}) || IsTainted(stored(t, client)) {
		t.Errorf("reports are %+v, want one change to tainted and one back", reports)
	}
}

// TestTaintRemovedAtTheEnd checks retries of the removal at the end.
func TestTaintRemovedAtTheEnd(t *testing.T) {
	tainter, client, clk := newTainter(t, calmNode())
	tainter.SetDesired(true, "why")

	if _, err := tainter.Sync(t.Context(), nil, true, "why"); err != nil {
		t.Fatal(err)
	}

	refuse := 2
	client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		refuse--
		return refuse >= 0, nil, apierrors.NewServiceUnavailable("gone")
	})
	done := make(chan error, 1)
	go func() { done <- tainter.removeTaint(t.Context()) }()

	for {
		select {
		case err := <-done:
			if err != nil || IsTainted(stored(t, client)) {
				t.Errorf("removeTaint = %v with node %+v, want nil and no taint", err, stored(t, client))
			}

			return

		default:
		}

		if clk.HasWaiters() {
			clk.Step(10 * time.Second)
		}
	}
}

// TestTainterRuns checks that the latest desired state counts, that retries slow down and that the taint is removed at the end.
func TestTainterRuns(t *testing.T) {
	tainter, client, clk := newTainter(t, calmNode())
	var mu sync.Mutex
	gone := true
	asked := 0
	var reports []TaintOutcome

	tainter.cfg.Report = func(o TaintOutcome) {
		mu.Lock()
		defer mu.Unlock()

		reports = append(reports, o)
	}

	client.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()

		asked++
		return gone, nil, apierrors.NewServiceUnavailable("gone")
	})

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tainter.Run(ctx) }()
	eventually := func(what string, ok func() bool) {
		t.Helper()

		if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return ok(), nil }); err != nil {
			t.Fatalf("waiting for %s: %v", what, err)
		}
	}

	tries := func() int {
		mu.Lock()
		defer mu.Unlock()

		return asked
	}

	tainter.SetDesired(true, "one")
	eventually("the first try", func() bool { return tries() == 1 })

	for i := range 100 {
		tainter.SetDesired(i%2 == 1, "other wishes")
	}

	for range 120 {
		eventually("a wait", clk.HasWaiters)
		clk.Step(time.Second)
	}

	if n := tries(); n < 4 || n > 20 {
		t.Errorf("%d requests within two minutes of an outage, want 4 to 20", n)
	}

	tainter.SetDesired(true, "the latest")
	mu.Lock()
	gone = false
	mu.Unlock()
	eventually("the taint", func() bool {
		clk.Step(time.Second)
		node := stored(t, client)
		return IsTainted(node) && conditionOf(node) != nil && conditionOf(node).Message == "the latest"
	})

	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if node := stored(t, client); IsTainted(node) || conditionOf(node).Status != corev1.ConditionFalse {
		t.Errorf("after the end of Run the node is %+v, want no taint and a False condition", node)
	}

	mu.Lock()
	defer mu.Unlock()

	if last := reports[len(reports)-1]; last.Avoided || last.Err != nil || reports[0].Err == nil {
		t.Errorf("reports are %+v, want a failure first and the removed taint last", reports)
	}
}

// TestTainterKeepsState checks that an agent without a desired state leaves the node unchanged.
func TestTainterKeepsState(t *testing.T) {
	tainter, client, clk := newTainter(t, calmNode())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tainter.Run(ctx) }()

	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return clk.HasWaiters(), nil }); err != nil {
		t.Fatal(err)
	}

	clk.Step(time.Minute)
	cancel()

	if err := <-done; err != nil || len(client.Actions()) > 0 {
		t.Errorf("the end of Run = %v with requests %v, want nil and none", err, client.Actions())
	}
}

// TestTaintStaysForTheNextAgent checks that the taint stays at the end if another agent follows.
func TestTaintStaysForTheNextAgent(t *testing.T) {
	tainter, client, _ := newTainter(t, calmNode())
	if _, err := tainter.Sync(t.Context(), nil, true, "a rule fires"); err != nil {
		t.Fatal(err)
	}

	tainter.SetDesired(true, "a rule fires")
	tainter.cfg.Keep = func() bool { return true }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := tainter.removeTaint(ctx); err != nil || !IsTainted(stored(t, client)) {
		t.Errorf("%v: the taint was removed", err)
	}

	tainter.cfg.Keep = func() bool { return false }
	if err := tainter.removeTaint(ctx); err != nil || IsTainted(stored(t, client)) {
		t.Errorf("%v: the taint is still there", err)
	}
}
