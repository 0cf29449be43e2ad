// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// soon returns an action with a cool-down of a second.
func soon(name string) *ensurancev1alpha1.AvoidanceAction {
	a := avoidance(name)
	a.Spec.CoolDownSeconds = new(int32(1))
	return a
}

func readNode(ctx context.Context, c client.Client, name string) (*corev1.Node, error) {
	var n corev1.Node
	err := c.Get(ctx, client.ObjectKey{Name: name}, &n)
	return &n, err
}

func isTainted(n *corev1.Node) bool {
	return slices.Contains(n.Spec.Taints, corev1.Taint{Key: ensurancev1alpha1.TaintKey, Effect: corev1.TaintEffectPreferNoSchedule})
}

func interference(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == ensurancev1alpha1.ConditionInterferenceIdentified {
			return &n.Status.Conditions[i]
		}
	}

	return nil
}

// becomes waits until a node has both the taint and the condition, or neither.
func becomes(t *testing.T, c client.Client, name string, tainted bool) (out *corev1.Node) {
	t.Helper()

	eventually(t, fmt.Sprintf("node %s tainted: %t", name, tainted), func(ctx context.Context) error {
		n, err := readNode(ctx, c, name)
		if err != nil {
			return err
		}

		out = n
		condition := interference(n)
		if isTainted(n) != tainted || (condition != nil && condition.Status == corev1.ConditionTrue) != tainted {
			return fmt.Errorf("taints %v, condition %+v", n.Spec.Taints, condition)
		}

		return nil
	})

	return out
}

// TestFiringRuleSetsTaint checks that a firing rule sets the taint, condition and events, that taints of others are kept, and that taint and condition
// are reset when the node is calm.
func TestFiringRuleSetsTaint(t *testing.T) {
	c := newClient(t)
	f := newHostFixture(t, c, 8000)
	node := newNode("taint")
	node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	harness.Create(t, c, node)
	startAgent(t, "taint", "--enforce=taint", "--host-root="+f.dir)

	// Other taints are added all the time.
	busy, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	written := 0

	go func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()

		for busy.Err() == nil {
			<-ticker.C
			if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				n, err := readNode(t.Context(), c, "taint")
				if err != nil {
					return err
				}

				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: fmt.Sprint("theirs-", written), Effect: corev1.TaintEffectNoSchedule})
				return c.Update(t.Context(), n)
			}); err != nil && !apierrors.IsConflict(err) {
				done <- err
				return
			} else if err == nil {
				written++
			}
		}

		done <- nil
	}()

	harness.Create(t, c, nodeQOS("taint", "taint", halfUsed, "40"), soon("taint"))
	n := becomes(t, c, "taint", true)
	if condition := interference(n); !strings.Contains(condition.Message, "rule taint/memory is firing") || condition.Reason != "RuleFires" || condition.LastTransitionTime.IsZero() {
		t.Errorf("condition %+v, want the firing rule and its time", condition)
	}

	awaitEvent(t, c, "Node", "taint", "AvoidanceTriggered", "taint/memory triggered action taint: 50 percent, above 40")
	awaitEvent(t, c, "Node", "taint", "NewPodsKeptAway", "rule taint/memory is firing")
	f.uses(1000)
	becomes(t, c, "taint", false)
	stop()

	if err := <-done; err != nil {
		t.Fatal(err)
	}

	n = becomes(t, c, "taint", false)
	if condition := interference(n); condition == nil || condition.Reason != "NoRuleFires" {
		t.Errorf("condition %+v, want NoRuleFires", condition)
	}
	if len(n.Spec.Taints) != written+1 || n.Spec.Taints[0].Key != "dedicated" {
		t.Errorf("the node has the taints %v, want %d", n.Spec.Taints, written+1)
	}

	awaitEvent(t, c, "Node", "taint", "RestoreTriggered", "taint/memory restored action taint: 6.25 percent")
	awaitEvent(t, c, "Node", "taint", "NewPodsWelcome")
}

// TestTaintOutlivesAKill checks that the next agent removes the taint if load or rule are gone, and keeps it otherwise.
func TestTaintOutlivesAKill(t *testing.T) {
	c := newClient(t)
	f := newHostFixture(t, c, 8000)
	q := nodeQOS("taint-kill", "taint-kill", halfUsed, "40")
	harness.Create(t, c, newNode("taint-kill"), q, soon("taint-kill"))
	flags := []string{"--enforce=taint", "--host-root=" + f.dir}
	kill := func(a *agent) {
		t.Helper()
		becomes(t, c, "taint-kill", true)
		a.Kill()
	}

	first := startAgent(t, "taint-kill", flags...)
	kill(first)
	since := interference(becomes(t, c, "taint-kill", true)).LastTransitionTime
	second := startAgent(t, "taint-kill", flags...)
	second.awaitLog(t, "phase=firing", "taint-kill/memory")
	kill(second)

	if n := becomes(t, c, "taint-kill", true); !interference(n).LastTransitionTime.Equal(&since) {
		t.Error("the taint came and went with an agent, want it kept while the cause stays")
	}

	f.uses(1000)
	third := startAgent(t, "taint-kill", flags...)
	becomes(t, c, "taint-kill", false)
	f.uses(8000)
	kill(third)

	if err := c.Delete(t.Context(), q); err != nil {
		t.Fatal(err)
	}

	startAgent(t, "taint-kill", flags...)
	becomes(t, c, "taint-kill", false)
}

// TestTaintGoesWithTheRules checks that the taint is removed with the last NodeQOS and at the end of the agent.
func TestTaintGoesWithTheRules(t *testing.T) {
	c := newClient(t)
	f := newHostFixture(t, c, 8000)
	q := nodeQOS("taint-rules", "taint-rules", halfUsed, "40")
	harness.Create(t, c, newNode("taint-rules"), q, soon("taint-rules"))
	a := startAgent(t, "taint-rules", "--enforce=taint", "--host-root="+f.dir)
	becomes(t, c, "taint-rules", true)

	if err := c.Delete(t.Context(), q); err != nil {
		t.Fatal(err)
	}

	becomes(t, c, "taint-rules", false)
	awaitEvent(t, c, "Node", "taint-rules", "RestoreTriggered", "the rule was deleted")
	harness.Create(t, c, nodeQOS("taint-rules", "taint-rules", halfUsed, "40"))
	becomes(t, c, "taint-rules", true)

	if err := a.Terminate(t); err != nil {
		t.Fatal(err)
	}

	becomes(t, c, "taint-rules", false)
}

// TestDryRunWritesNothing checks that a dry run changes neither the node nor writes events.
func TestDryRunWritesNothing(t *testing.T) {
	c := newClient(t)
	f := newHostFixture(t, c, 8000)
	harness.Create(t, c, newNode("taint-dry"), nodeQOS("taint-dry", "taint-dry", halfUsed, "40"), soon("taint-dry"))
	a := startAgent(t, "taint-dry", "--host-root="+f.dir)
	a.awaitLog(t, "action=taint", "outcome=would")

	n, err := readNode(t.Context(), c, "taint-dry")
	if err != nil || isTainted(n) || interference(n) != nil {
		t.Errorf("node %+v, %v, want no taint and no condition", n, err)
	}

	var list corev1.EventList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}

	for i := range list.Items {
		if list.Items[i].InvolvedObject.Name == "taint-dry" {
			t.Errorf("event %q of the node, want none in a dry run", list.Items[i].Message)
		}
	}
}

// TestEventsAtTheEnd checks that events at the end of an agent are written before it ends.
func TestEventsAtTheEnd(t *testing.T) {
	c := newClient(t)
	f := newHostFixture(t, c, 8000)
	harness.Create(t, c, newNode("taint-end"), nodeQOS("taint-end", "taint-end", halfUsed, "40"), soon("taint-end"))
	a := startAgent(t, "taint-end", "--enforce=taint", "--host-root="+f.dir)
	becomes(t, c, "taint-end", true)

	if err := a.Terminate(t); err != nil {
		t.Fatal(err)
	}

	awaitEvent(t, c, "Node", "taint-end", "NewPodsWelcome", "the agent has ended")
}
