// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/ruleset"
)

// fixture is an in-memory API server with a watcher of node-1.
type fixture struct {
	core  *fake.Clientset
	rules *dynamicfake.FakeDynamicClient
	clock *clocktesting.FakeClock
	*Watcher
	beats atomic.Int64
}

func resource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "ensurance.crane.io", Version: "v1alpha1", Resource: plural}
}

func nodeQOS(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "ensurance.crane.io/v1alpha1", "kind": "NodeQOS", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

func rule(metric string, value any) map[string]any {
	return map[string]any{"rules": []any{map[string]any{"name": "r", "actionName": "a", "metricRule": map[string]any{"name": metric, "value": value}}}}
}

func podOn(node, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}}}, Spec: corev1.PodSpec{NodeName: node}}
}

func newFixture(t *testing.T, rules *ruleset.Set) *fixture {
	t.Helper()

	w := &fixture{clock: clocktesting.NewFakeClock(time.Unix(0, 0))}
	w.core = fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"pool": "mixed"}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}, podOn("node-1", "b"), podOn("node-1", "a"), podOn("node-2", "c"))
	w.rules = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		resource("nodeqoss"): "NodeQOSList", resource("podqoss"): "PodQOSList", resource("avoidanceactions"): "AvoidanceActionList",
	})

	if _, err := w.rules.Resource(resource("nodeqoss")).Create(t.Context(), nodeQOS("mixed", rule("cpu_total_usage", "0.5")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	w.rules.ClearActions()
	w.Watcher = NewWatcher(Config{
		Client: w.core, Dynamic: w.rules, Node: "node-1", Namespace: "crane-system", Rules: rules, Clock: w.clock, Log: logr.Discard(), Beat: func(string) { w.beats.Add(1) },
	})

	return w
}

func (w *fixture) start(t *testing.T) {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (w *fixture) until(t *testing.T, what string, holds func(*State) bool) {
	t.Helper()

	var last *State
	err := wait.PollUntilContextTimeout(t.Context(), 2*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = w.State()
		return holds(last), nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: node %t, %d pods, rules %+v, problems %q", what, last.Node != nil, len(last.Pods), last.Rules, last.Problems)
	}
}

// awaitWatches waits until every kind is watched: the fake API servers lose what changes between a list and its watch.
func (w *fixture) awaitWatches(t *testing.T) {
	t.Helper()

	w.until(t, "watches of all kinds", func(*State) bool {
		watches := 0
		for _, action := range append(w.core.Actions(), w.rules.Actions()...) {
			if action.GetVerb() == "watch" {
				watches++
			}
		}

		return watches >= len(w.activeCaches())
	})
}

// noOptOuts lets the watcher know that nothing has opted out.
func (w *fixture) noOptOuts(t *testing.T) {
	t.Helper()

	if err := errors.Join(w.caches.namespaces.Replace(nil, "1"), w.caches.optOuts.Replace(nil, "1")); err != nil {
		t.Fatal(err)
	}
}

// TestOptOut checks that pods have the opt-out label of their namespace and of their workload, as long as that has it, and that no pod is
// known before the labels are.
func TestOptOut(t *testing.T) {
	w := newFixture(t, nil)
	ctx := t.Context()

	if err := w.caches.pods.Replace([]any{podOn("node-1", "a")}, "1"); err != nil {
		t.Fatal(err)
	}

	if s := w.State(); s.KnowsPods || len(s.Pods) != 0 {
		t.Errorf("State() = %+v, want no pods while it is unknown which have opted out", s)
	}

	optedOut := func(want ...string) func(*State) bool {
		return func(s *State) bool {
			var got []string
			for _, p := range s.Pods {
				if p.Labels["crane.io/opt-out"] == "true" {
					got = append(got, p.Name)
				}
			}

			return s.KnowsPods && slices.Equal(got, want)
		}
	}

	pod := podOn("node-1", "web-77-x")
	pod.Labels = map[string]string{"pod-template-hash": "77"}

	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-77", Controller: new(true)}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"crane.io/opt-out": "true"}}}
	if err := errors.Join(w.core.Tracker().Add(pod), w.core.Tracker().Add(namespace)); err != nil {
		t.Fatal(err)
	}

	w.start(t)
	w.until(t, "all of the namespace", optedOut("a", "b", "web-77-x"))
	w.awaitWatches(t)

	if err := w.core.CoreV1().Namespaces().Delete(ctx, "n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	w.until(t, "none", optedOut())
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: "crane-opt-outs"}, Data: map[string]string{"workloads": "Deployment n/web\n"}}
	if _, err := w.core.CoreV1().ConfigMaps("crane-system").Create(ctx, list, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	w.until(t, "those of the workload", optedOut("web-77-x"))
	if err := w.core.CoreV1().ConfigMaps("crane-system").Delete(ctx, "crane-opt-outs", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	w.until(t, "none again", optedOut())
}

func TestWatcher(t *testing.T) {
	w := newFixture(t, nil)
	if s := w.State(); s.Node != nil || s.KnowsPods || len(s.Problems) != 0 {
		t.Errorf("State() before the first answer = %+v, want nothing known", s)
	}

	w.start(t)
	<-w.Answered()
	w.until(t, "all of the node is known", func(s *State) bool {
		return s.Node != nil && s.Node.Labels["pool"] == "mixed" && s.KnowsPods && len(s.Rules.NodeQOS) == 1 && len(s.Problems) == 0
	})

	s := w.State()
	if len(w.Pods()) != 2 || s.Pods[0].Name != "a" || s.Pods[1].Name != "b" || s.Pods[0].ManagedFields != nil || w.Node().Name != "node-1" {
		t.Errorf("State() has pods %v and node %v, want a and b without managed fields and node-1", s.Pods, w.Node())
	}
	if q := w.Rules().NodeQOS[0].Spec.Rules[0].MetricRule; q.Value.String() != "500m" {
		t.Errorf("the rule's value is %v, want the fraction 500m", q.Value)
	}
	if w.State() != s {
		t.Error("State() returned another pointer, want the same while nothing changes")
	}

	w.awaitWatches(t)
	ctx := t.Context()
	objects := w.rules.Resource(resource("nodeqoss"))
	if _, err := objects.Update(ctx, nodeQOS("mixed", rule("cpu_total_usage", "0.7")), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	w.until(t, "a change", func(s *State) bool {
		return len(s.Rules.NodeQOS) == 1 && s.Rules.NodeQOS[0].Spec.Rules[0].MetricRule.Value.String() == "700m"
	})

	if w.State() == s {
		t.Error("State() returned the same pointer, want another after a change of rules")
	}
	if _, err := objects.Create(ctx, nodeQOS("second", rule("memory_total_usage", "1Gi")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	w.until(t, "two", func(s *State) bool { return len(s.Rules.NodeQOS) == 2 })
	if err := objects.Delete(ctx, "mixed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	w.until(t, "one again", func(s *State) bool { return len(s.Rules.NodeQOS) == 1 && s.Rules.NodeQOS[0].Name == "second" })
	if err := w.core.CoreV1().Pods("n").Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	w.until(t, "a pod less", func(s *State) bool { return len(s.Pods) == 1 && s.Pods[0].Name == "b" })
}

// TestBadObject checks that an unreadable object is named and others are kept.
func TestBadObject(t *testing.T) {
	w := newFixture(t, nil)
	w.start(t)
	w.awaitWatches(t)

	if _, err := w.rules.Resource(resource("nodeqoss")).Create(t.Context(), nodeQOS("bad", rule("cpu_total_usage", "lots")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	w.until(t, "a problem", func(s *State) bool {
		return len(s.Rules.NodeQOS) == 1 && s.Rules.NodeQOS[0].Name == "mixed" &&
			slices.ContainsFunc(s.Problems, func(p string) bool { return strings.HasPrefix(p, "NodeQOS bad cannot be read: ") })
	})
}

// TestMissingKind checks that an unserved kind is reported and found later.
func TestMissingKind(t *testing.T) {
	w := newFixture(t, nil)
	var missing atomic.Bool
	missing.Store(true)
	var asked atomic.Int64

	refuse := func(clienttesting.Action) (bool, runtime.Object, error) {
		asked.Add(1)
		return missing.Load(), nil, apierrors.NewNotFound(resource("nodeqoss").GroupResource(), "")
	}
	w.rules.PrependReactor("list", "nodeqoss", refuse)
	w.start(t)
	<-w.Answered()

	w.until(t, "reported", func(s *State) bool {
		return s.Node != nil && len(s.Unavailable) == 1 && strings.Contains(s.Unavailable[0], "CustomResourceDefinition is not installed")
	})
	missing.Store(false)
	w.until(t, "found", func(s *State) bool {
		w.clock.Step(maxMissingPause)
		return len(s.Rules.NodeQOS) == 1 && len(s.Unavailable) == 0
	})
}

// TestDefinitionRemoved checks that rules are kept for a limited time after their definition disappeared, unlike nodes and pods, that
// unrelated errors do not restart that time and that retries slow down.
func TestDefinitionRemoved(t *testing.T) {
	w := newFixture(t, nil)
	rules, pods := w.caches.nodeQOS, w.caches.pods
	w.noOptOuts(t)

	if err := errors.Join(rules.Replace([]any{nodeQOS("mixed", rule("cpu_total_usage", "0.5"))}, "1"), pods.Replace([]any{podOn("node-1", "a")}, "1")); err != nil {
		t.Fatal(err)
	}

	gone := apierrors.NewNotFound(resource("nodeqoss").GroupResource(), "")
	for range 4 {
		rules.recordAnswer(t.Context(), gone)
		pods.recordAnswer(t.Context(), gone)
		rules.recordAnswer(t.Context(), errors.New("connection refused"))

		if s := w.State(); len(s.Rules.NodeQOS) != 1 {
			t.Errorf("after %s the rules are %+v, want the last known one", w.clock.Since(time.Unix(0, 0)), s.Rules)
		}
		w.clock.Step(missingHold / 4)
	}

	rules.recordAnswer(t.Context(), gone)
	pods.recordAnswer(t.Context(), gone)

	if s := w.State(); len(s.Rules.NodeQOS) != 0 || len(s.Pods) != 1 || !slices.ContainsFunc(s.Unavailable, func(p string) bool { return strings.HasSuffix(p, "is not installed; there are none") }) {
		t.Errorf("after missingHold State() = %+v, want no rules, the pod, and the missing definition", s)
	}

	pause := func(want time.Duration) {
		t.Helper()

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		rules.waitWhileMissing(ctx)

		if rules.missingWait != want {
			t.Errorf("waits for %s, want %s", rules.missingWait, want)
		}
	}

	for _, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
		pause(want * time.Second)
	}

	rules.recordAnswer(t.Context(), nil)
	pause(0)
	rules.recordAnswer(t.Context(), gone)
	pause(minMissingPause)
}

// TestForbidden checks that a permission error is reported and known objects are kept.
func TestForbidden(t *testing.T) {
	w := newFixture(t, nil)
	var gone atomic.Bool
	w.core.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return gone.Load(), nil, errors.New("connection refused")
	})

	gone.Store(true)
	w.start(t)
	w.until(t, "reported", func(s *State) bool {
		return !s.KnowsPods && slices.ContainsFunc(s.Unavailable, func(p string) bool {
			return strings.HasPrefix(p, "pods: ") && strings.Contains(p, "connection refused") && strings.Contains(p, "no objects are known")
		})
	})

	gone.Store(false)
	w.until(t, "known", func(s *State) bool { return s.KnowsPods && len(s.Pods) == 2 && len(s.Unavailable) == 0 })
}

// TestHolds checks that an error keeps known objects and that a repeated error changes nothing.
func TestHolds(t *testing.T) {
	w := newFixture(t, nil)
	pods := w.caches.pods
	w.noOptOuts(t)

	if err := pods.Replace([]any{podOn("node-1", "a"), podOn("node-2", "b"), podOn("node-1", "c")}, "1"); err != nil {
		t.Fatal(err)
	}

	refused := func(query string) error {
		return &url.Error{Op: "Get", URL: "https://x/pods?" + query, Err: errors.New("connection refused")}
	}
	pods.recordAnswer(t.Context(), refused("timeout=5m"))

	s := w.State()
	if len(s.Pods) != 2 || len(s.Unavailable) != 1 || s.Unavailable[0] != "pods: watch failed: connection refused; the last known objects are kept" {
		t.Errorf("State() = %+v, want the last known pods and one problem", s)
	}

	pods.recordAnswer(t.Context(), refused("timeout=6m"))
	if w.State() != s {
		t.Error("State() returned another pointer, want the same for the same error")
	}

	pods.recordAnswer(t.Context(), nil)
	if s := w.State(); len(s.Pods) != 2 || len(s.Unavailable) != 0 {
		t.Errorf("State() after the recovery = %+v, want the pods without a problem", s)
	}
}

// TestRulesOfAFile checks that rules of a file are not read from the API server.
func TestRulesOfAFile(t *testing.T) {
	w := newFixture(t, &ruleset.Set{})
	w.start(t)
	<-w.Answered()
	w.until(t, "known", func(s *State) bool { return s.Node != nil && s.KnowsPods })

	if s := w.State(); len(s.Rules.NodeQOS) != 0 || len(w.rules.Actions()) != 0 {
		t.Errorf("rules are %+v with requests %v, want those of the file and none", s.Rules, w.rules.Actions())
	}
}

func TestUnknownNode(t *testing.T) {
	w := newFixture(t, nil)
	if err := w.core.CoreV1().Nodes().Delete(t.Context(), "node-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	w.start(t)
	w.until(t, "reported", func(s *State) bool {
		return s.Node == nil && slices.ContainsFunc(s.Problems, func(p string) bool { return strings.HasPrefix(p, "there is no Node node-1") })
	})
}

// TestBeats checks that the watcher starts when every kind was answered.
func TestBeats(t *testing.T) {
	w := newFixture(t, nil)
	w.start(t)
	w.until(t, "a beat", func(*State) bool { return w.beats.Load() > 0 })
	before := w.beats.Load()
	w.until(t, "another", func(*State) bool { w.clock.Step(logInterval); return w.beats.Load() > before })
}

// TestSilence checks that a hanging API server delays the start for a limited time.
func TestSilence(t *testing.T) {
	w := newFixture(t, nil)
	release := make(chan struct{})
	w.rules.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		<-release
		return false, nil, nil
	})
	w.start(t)
	defer close(release)

	w.until(t, "the others are known", func(s *State) bool { return s.Node != nil && s.KnowsPods })
	if w.beats.Load() != 0 {
		t.Error("Run called Beat before the rules were listed, want none")
	}

	w.until(t, "a beat all the same", func(*State) bool { w.clock.Step(logInterval); return w.beats.Load() > 0 })
	if s := w.State(); s.KnowsRules {
		t.Error("KnowsRules = true before the rules were listed, want false")
	}
}

func TestStatic(t *testing.T) {
	s := NewStatic(State{Pods: []*corev1.Pod{podOn("x", "a")}, IgnoreNodeLabels: true})
	again := s.State()
	if len(s.Pods()) != 1 || s.Node() != nil || len(s.Rules().NodeQOS) != 0 || s.State() != again {
		t.Errorf("State() = %+v, want one pod and always the same pointer", s.State())
	}
}

// TestStartSpread checks that an agent asks nothing of the API server before a random part of the spread has passed.
func TestStartSpread(t *testing.T) {
	w := newFixture(t, nil)
	w.config.StartSpread = time.Minute
	w.start(t)

	select {
	case <-w.Answered():
		t.Error("the watcher has answers before the wait, want none")
	case <-time.After(100 * time.Millisecond): // A watcher that does not wait has its answers within a few milliseconds.
	}

	if n := len(w.core.Actions()) + len(w.rules.Actions()); n > 0 {
		t.Errorf("%d requests before the wait, want none", n)
	}

	w.until(t, "the wait", func(*State) bool { return w.clock.HasWaiters() })
	w.clock.Step(time.Minute)
	<-w.Answered()
}
