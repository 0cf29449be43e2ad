// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/durablefile"
)

// restartFixture is an agent's pod of a DaemonSet on a node.
func restartFixture(t *testing.T, change func(*appsv1.DaemonSet, *corev1.Namespace, *corev1.Pod)) restartManager {
	t.Helper()

	t.Setenv("POD_NAME", "crane-agent-x")
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: "crane-agent", UID: "set"}}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "crane-system"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: "crane-agent-x", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "crane-agent", UID: "set", Controller: new(true)},
	}}}
	change(set, space, pod)

	objects := []runtime.Object{space}
	if set.Name != "" {
		objects = append(objects, set)
	}

	o := NewOptions()
	o.StateDir = t.TempDir()
	o.Cluster.Namespace = "crane-system"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"pool": "mixed"}}}

	return restartManager{
		environment: environment{Options: o, log: logr.Discard(), clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), restart: &restart{}},
		access: clusterAccess{
			view: cluster.NewStatic(cluster.State{Node: node, Pods: []*corev1.Pod{pod}}), api: &clients{Interface: fake.NewClientset(objects...)},
		},
		taints: true,
	}
}

// TestWhenChangesStay checks that changes stay at the end only if another agent follows for certain, with a marker.
func TestWhenChangesStay(t *testing.T) {
	now := &metav1.Time{Time: time.Unix(1, 0)}
	for name, test := range map[string]struct {
		change func(*appsv1.DaemonSet, *corev1.Namespace, *corev1.Pod)
		why    string
	}{
		"upgrade":     {func(*appsv1.DaemonSet, *corev1.Namespace, *corev1.Pod) {}, ""},
		"uninstalled": {func(s *appsv1.DaemonSet, _ *corev1.Namespace, _ *corev1.Pod) { s.Name = "" }, "not found"},
		"being uninstalled": {func(s *appsv1.DaemonSet, _ *corev1.Namespace, _ *corev1.Pod) {
			s.DeletionTimestamp = now
			s.Finalizers = []string{"foregroundDeletion"}
		}, "being deleted"},
		"created again": {func(s *appsv1.DaemonSet, _ *corev1.Namespace, _ *corev1.Pod) { s.UID = "other" }, "being deleted"},
		"namespace": {func(_ *appsv1.DaemonSet, n *corev1.Namespace, _ *corev1.Pod) {
			n.DeletionTimestamp = now
			n.Finalizers = []string{"kubernetes"}
		}, "namespace"},
		"the node leaves": {func(s *appsv1.DaemonSet, _ *corev1.Namespace, _ *corev1.Pod) {
			s.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "other"}
		}, "no longer selects"},
		"no DaemonSet":           {func(_ *appsv1.DaemonSet, _ *corev1.Namespace, p *corev1.Pod) { p.OwnerReferences = nil }, "no DaemonSet"},
		"not a pod of this node": {func(_ *appsv1.DaemonSet, _ *corev1.Namespace, p *corev1.Pod) { p.Name = "other" }, "no pod"},
	} {
		t.Run(name, func(t *testing.T) {
			m := restartFixture(t, test.change)
			err := m.followed(t.Context())
			if (err == nil) != (test.why == "") || err != nil && !strings.Contains(err.Error(), test.why) {
				t.Errorf("%v, want %q", err, test.why)
			}

			if err := m.Run(ended(t)); err != nil {
				t.Error(err)
			}
			if m.restart.kept() != (test.why == "") || m.leftHandover() != m.restart.kept() {
				t.Errorf("changes are kept: %t, marker %t; want both: %t", m.restart.kept(), m.leftHandover(), test.why == "")
			}

			if next := m.readHandover(); next.inherited != (test.why == "") || next.leftTaint() != next.inherited || m.leftHandover() {
				t.Errorf("readHandover = %+v, want changes taken over: %t, and no marker left", next, test.why == "")
			}
		})
	}
}

// TestFollowedInAnotherNamespace checks that the DaemonSet is that of the agent's own namespace where craned is in another one.
func TestFollowedInAnotherNamespace(t *testing.T) {
	m := restartFixture(t, func(s *appsv1.DaemonSet, n *corev1.Namespace, p *corev1.Pod) {
		s.Namespace = "crane-agent"
		n.Name = "crane-agent"
		p.Namespace = "crane-agent"
	})

	if err := m.followed(t.Context()); err == nil {
		t.Error("followed by a DaemonSet of another namespace = nil, want an error")
	}

	t.Setenv("POD_NAMESPACE", "crane-agent")
	if err := m.followed(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLimitsSurviveRestart checks that a throttled pod keeps its limit across a restart, that the next agent restores it after the deadline
// if no rule fires, and that any other successor restores it at once.
func TestLimitsSurviveRestart(t *testing.T) {
	throttled := func(t *testing.T) (*hostFixture, fixture, string) {
		t.Helper()

		m := newHostFixture(t)
		m.web, m.hog = 1, 3
		b := fixture{m.dir, t.TempDir(), clocktesting.NewFakeClock(m.now), m.tree, known(t, rules, podOn("22222222-2222-2222-2222-222222222222", "hog", containerID("2")))}

		p, l, _ := b.agent(t, enforceThrottle)
		for range 10 {
			l.tick(m.run(t))
		}

		limit := m.hogsLimit(t)
		if strings.HasPrefix(limit, "max") {
			t.Fatalf("hog's limit is %s, want one", limit)
		}

		b.clock.SetTime(m.now)
		keeper := restartFixture(t, func(*appsv1.DaemonSet, *corev1.Namespace, *corev1.Pod) {})
		keeper.StateDir = b.state

		keeper.clock = b.clock
		keeper.restart = p.restart
		if err := keeper.Run(ended(t)); err != nil {
			t.Fatal(err)
		}

		if err := (undoOnStop{p.changes, p.reporter, p.restart.kept}).Run(ended(t)); err != nil || m.hogsLimit(t) != limit {
			t.Fatalf("the end with kept changes = %v with limit %s, want nil and %s", err, m.hogsLimit(t), limit)
		}

		return m, b, limit
	}

	t.Run("taken over", func(t *testing.T) {
		m, b, limit := throttled(t)
		_, l, _ := b.agent(t, enforceThrottle)

		if m.hogsLimit(t) != limit {
			t.Errorf("after the start the limit is %s, want %s as before", m.hogsLimit(t), limit)
		}

		m.hog = 0.1
		for range int(defaultRestartGrace/time.Second) - 2 {
			l.tick(m.run(t))
		}

		if m.hogsLimit(t) != limit {
			t.Errorf("before the deadline the limit is %s, want %s as before", m.hogsLimit(t), limit)
		}

		for range 3 {
			l.tick(m.run(t))
		}

		if got := m.hogsLimit(t); got != "max 100000" {
			t.Errorf("after the deadline the limit is %s, want none", got)
		}
	})

	t.Run("requests more", func(t *testing.T) {
		m, b, limit := throttled(t)
		view := &changingView{known(t, rules, podOn("22222222-2222-2222-2222-222222222222", "hog", containerID("2")))}
		b.view = view
		_, l, _ := b.agent(t, enforceThrottle)
		l.tick(m.run(t))

		resized := podOn("22222222-2222-2222-2222-222222222222", "hog", containerID("2"))
		resized.Spec.Resources = &corev1.ResourceRequirements{Requests: lifeAmounts("cpu=3")}
		view.set(t, resized)
		l.tick(m.run(t))

		if got := m.hogsLimit(t); got != "300000 100000" {
			t.Errorf("the limit after a resize of the pod to 3 CPUs = %s, want them; before %s", got, limit)
		}

		view.set(t, podOn("22222222-2222-2222-2222-222222222222", "hog", containerID("2")))
		m.hog = 0.1
		for range 2 * int(defaultRestartGrace/time.Second) {
			l.tick(m.run(t))
		}

		if got := m.hogsLimit(t); got != "max 100000" {
			t.Errorf("the limit on a calm node after the deadline = %s, want none", got)
		}
	})

	t.Run("throttled further", func(t *testing.T) {
		m, b, limit := throttled(t)
		p, l, _ := b.agent(t, enforceThrottle)
		m.web = 1.9 // the rule fires
		for range int(defaultRestartGrace/time.Second) + 5 {
			l.tick(m.run(t))
		}

		if got := m.hogsLimit(t); strings.HasPrefix(got, "max") {
			t.Errorf("the limit is %s, want one as before (%s): the rule fires", got, limit)
		}
		if err := (undoOnStop{p.changes, p.reporter, p.restart.kept}).Run(ended(t)); err != nil || m.hogsLimit(t) != "max 100000" {
			t.Errorf("the end = %v with limit %s, want nil and the original", err, m.hogsLimit(t))
		}
	})

	t.Run("expired", func(t *testing.T) {
		m, b, _ := throttled(t)
		b.clock.Step(defaultRestartGrace)
		b.agent(t, enforceThrottle)

		if got := m.hogsLimit(t); got != "max 100000" {
			t.Errorf("after an expired handover the limit is %s, want none", got)
		}
	})

	t.Run("another kind", func(t *testing.T) {
		m, b, _ := throttled(t)
		b.agent(t)

		if got := m.hogsLimit(t); got != "max 100000" {
			t.Errorf("with another kind enforced the limit is %s, want none", got)
		}
	})

	t.Run("damaged", func(t *testing.T) {
		m, b, _ := throttled(t)
		if err := os.WriteFile(filepath.Join(b.state, handoverFile), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}

		p, _, _ := b.agent(t, enforceThrottle)
		if got := m.hogsLimit(t); got != "max 100000" || !p.restart.leftTaint() {
			t.Errorf("after a damaged marker the limit is %s, taint %t; want none and a possible taint", got, p.restart.leftTaint())
		}
	})

	t.Run("newer version", func(t *testing.T) {
		m, b, _ := throttled(t)
		newer, err := durablefile.Seal(handoverVersion+1, map[string]any{"until": 7})
		if err != nil {
			t.Fatal(err)
		}

		path := filepath.Join(b.state, handoverFile)
		if err := os.WriteFile(path, newer, 0o600); err != nil {
			t.Fatal(err)
		}

		p, _, _ := b.agent(t, enforceThrottle)
		if got := m.hogsLimit(t); got != "max 100000" || p.restart.inherited || !p.restart.leftTaint() {
			t.Errorf("after a newer marker the limit is %s, inherited %t; want none and nothing taken over", got, p.restart.inherited)
		}
		if list := p.newRestartManager(clusterAccess{view: b.view, api: &clients{}}, executors{}); len(list) != 0 {
			t.Error("newRestartManager returned a manager, want none: it would overwrite the marker")
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, newer) {
			t.Errorf("the newer marker is %q, %v, want it unchanged", got, err)
		}
	})

	t.Run("earlier version", func(t *testing.T) {
		m, b, _ := throttled(t)
		older, err := durablefile.Seal(handoverVersion-1, handover{Deadline: b.clock.Now().Add(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(filepath.Join(b.state, handoverFile), older, 0o600); err != nil {
			t.Fatal(err)
		}

		p, _, _ := b.agent(t, enforceThrottle)
		if got := m.hogsLimit(t); got != "max 100000" || p.leftHandover() {
			t.Errorf("after an older marker the limit is %s, marker %t; want none and removed", got, p.leftHandover())
		}
	})
}
