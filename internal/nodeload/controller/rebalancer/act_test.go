// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/rebalance"
)

type answer struct{ err error }

func (a answer) Evict(context.Context, string, string, types.UID) error { return a.err }

// TestEvictionResults checks the handling of each answer to an eviction. One that may have succeeded counts as a success;
// errors of the API server itself are not attributed to a PodDisruptionBudget.
func TestEvictionResults(t *testing.T) {
	budget := apierrors.NewTooManyRequests("Cannot evict pod", 10)
	budget.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "needs 2"}}
	for name, test := range map[string]struct {
		err    error
		result string
		// moved is set where the eviction counts against the limits of the node and the hour, resting where the cooldown of the workload
		// starts, event where an event is recorded.
		moved, resting, event bool
	}{
		"yes":               {nil, "evicted", true, true, true},
		"a budget":          {budget, "budget", false, true, true},
		"two budgets":       {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "This pod has more than one PodDisruptionBudget"}}, "budget", false, true, true},
		"busy":              {apierrors.NewTooManyRequests("busy", 1), "failed", false, true, false},
		"timeout":           {context.DeadlineExceeded, "failed", true, true, false},
		"internal error":    {apierrors.NewInternalError(errors.New("etcd")), "failed", true, true, false},
		"another pod, gone": {apierrors.NewConflict(corev1.Resource("pods"), "web", errors.New("UID")), "gone", false, false, false},
	} {
		recorder := events.NewFakeRecorder(10)
		c := &Controller{
			cfg:     Config{Settings: DefaultSettings(), Evictor: answer{test.err}, Events: recorder, Metrics: NewMetrics()},
			cooling: map[string]time.Time{}, reported: map[string]time.Time{}, departures: map[departure]*departureRecord{},
		}
		target := &nodePatches{}
		c.cfg.Patches = target
		c.cfg.Settings.DryRun = false
		s := &snapshot{nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "hot"}}, {ObjectMeta: metav1.ObjectMeta{Name: "cold"}}}, heldNodes: map[int]bool{}}
		c.move(t.Context(), s, rebalance.Move{Pod: rebalance.Pod{Namespace: "shop", Name: "web-1", Workload: "w"}, To: 1}, time.Unix(0, 0))

		_, node := c.cooling["node/hot"]
		_, workload := c.cooling["workload/w"]
		if c.cfg.Metrics.moves[[2]string{test.result, ""}] != 1 || node != test.moved || (len(c.moves) == 1) != test.moved || workload != test.resting || (len(recorder.Events) == 1) != test.event {
			t.Errorf("%s: %v, node rests %t, workload %t, %d moves, %d events, want result %s, moved %t, resting %t, event %t",
				name, c.cfg.Metrics.moves, node, workload, len(c.moves), len(recorder.Events), test.result, test.moved, test.resting, test.event)
		}
	}
}

// nodePatches records patches of nodes.
type nodePatches struct {
	err     error
	patched []string
}

func (p *nodePatches) PatchNode(_ context.Context, name string, patch []byte) error {
	p.patched = append(p.patched, name+" "+string(patch))
	return p.err
}

// TestTargetIsHeld checks that the target is held before the eviction, that a pod stays where that fails, and that
// expired holds are removed.
func TestTargetIsHeld(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	start := func(patchError error) (*Controller, *nodePatches, *snapshot) {
		target := &nodePatches{err: patchError}
		c := &Controller{
			cfg:     Config{Settings: DefaultSettings(), Evictor: answer{}, Events: events.NewFakeRecorder(10), Metrics: NewMetrics(), Patches: target},
			cooling: map[string]time.Time{}, reported: map[string]time.Time{}, departures: map[departure]*departureRecord{},
		}
		c.cfg.Settings.DryRun = false

		return c, target, &snapshot{heldNodes: map[int]bool{}, nodes: []corev1.Node{
			{ObjectMeta: metav1.ObjectMeta{Name: "hot"}}, {ObjectMeta: metav1.ObjectMeta{Name: "cold", UID: "u", ResourceVersion: "7"}},
		}}
	}

	move := rebalance.Move{To: 1, Pod: rebalance.Pod{
		Namespace: "shop", Name: "web-1", UID: "p", Workload: "shop/ReplicaSet/web", Use: nodeload.Amount{CPU: 500, Memory: 1 << 30},
	}}
	c, target, s := start(nil)
	c.move(t.Context(), s, move, now)
	const held = `[{\"pod\":\"p\",\"workload\":\"shop/ReplicaSet/web\",\"cpu\":500,\"memory\":1073741824,\"until\":\"2001-09-09T01:47:40Z\"}]`

	want := `cold {"metadata":{"annotations":{"node-load.crane.io/holds":"` + held + `"},"resourceVersion":"7","uid":"u"}}`
	if !slices.Equal(target.patched, []string{want}) || c.cfg.Metrics.moves[[2]string{"evicted", ""}] != 1 {
		t.Errorf("patches %v, want %s; moves %v, want one evicted", target.patched, want, c.cfg.Metrics.moves)
	}

	c, _, s = start(apierrors.NewConflict(corev1.Resource("nodes"), "cold", errors.New("changed")))
	c.move(t.Context(), s, move, now)

	if c.cfg.Metrics.moves[[2]string{"not-held", ""}] != 1 || len(c.moves) != 0 {
		t.Errorf("without a hold: %v and %d moves, want not-held and none", c.cfg.Metrics.moves, len(c.moves))
	}

	c, target, s = start(nil)
	s.nodes[1].Annotations = map[string]string{nodeload.HoldsKey: strings.ReplaceAll(held, `\"`, `"`)}
	c.dropExpiredHolds(t.Context(), s.nodes, now)

	if len(target.patched) != 0 {
		t.Errorf("patches with a valid hold %v, want none", target.patched)
	}

	c.dropExpiredHolds(t.Context(), s.nodes, now.Add(time.Hour))
	if want := `cold {"metadata":{"annotations":{"node-load.crane.io/holds":null},"resourceVersion":"7","uid":"u"}}`; !slices.Equal(target.patched, []string{want}) {
		t.Errorf("patches %v, want %s", target.patched, want)
	}
}

// TestNoSecondMoveAfterAReturn checks that a pod that has come back to the node that its workload was moved off stays.
func TestNoSecondMoveAfterAReturn(t *testing.T) {
	moved := time.Unix(1e9, 0)
	c := &Controller{cooling: map[string]time.Time{}, departures: map[departure]*departureRecord{{workload: "shop/ReplicaSet/web", node: "hot"}: {at: moved}}}
	pod := newPod(func(p *corev1.Pod) {
		p.Spec.NodeName = "hot"
		p.CreationTimestamp = metav1.NewTime(moved.Add(-time.Hour))
	})
	c.recordReturns([]*corev1.Pod{pod})

	if why := c.coolDownReason(pod); why != "" {
		t.Errorf("coolDownReason of an older pod of the workload = %q, want none", why)
	}

	back := newPod(func(p *corev1.Pod) {
		p.Spec.NodeName = "hot"
		p.CreationTimestamp = metav1.NewTime(moved.Add(time.Second))
	})
	c.recordReturns([]*corev1.Pod{back})

	if why := c.coolDownReason(back); !strings.Contains(why, "one has come back") {
		t.Errorf("coolDownReason of the pod that has come back = %q, want a reason", why)
	}

	elsewhere := newPod(func(p *corev1.Pod) { p.Spec.NodeName = "other" })
	if why := c.coolDownReason(elsewhere); why != "" {
		t.Errorf("coolDownReason of a pod on another node = %q, want none", why)
	}

	c.expire(moved.Add(returnWindow))
	if len(c.departures) != 0 {
		t.Errorf("%d departures after a day, want 0", len(c.departures))
	}
}
