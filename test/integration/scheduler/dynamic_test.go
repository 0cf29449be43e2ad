// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	analysis "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/cli"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/test/integration/harness"
)

const loadPolicy = `apiVersion: scheduler.policy.crane.io/v1alpha1
kind: DynamicSchedulerPolicy
spec:
  syncPolicy:
  - {name: cpu_usage_avg_5m, period: 3m}
  predicate:
  - {name: cpu_usage_avg_5m, maxLimitPecent: LIMIT}
  priority:
  - {name: cpu_usage_avg_5m, weight: 1}
`

// dynamicScheduler is a scheduler with plugin Dynamic.
type dynamicScheduler struct {
	*scheduler
	policy  string // path of the policy file
	explain string // address of explanations
}

func startDynamic(t testing.TB, limit string) *dynamicScheduler {
	t.Helper()

	d := &dynamicScheduler{policy: filepath.Join(t.TempDir(), "policy.yaml"), explain: harness.FreeAddress(t)}
	d.limit(t, limit)
	d.scheduler = startScheduler(t, setup{profile: `
  plugins:
    multiPoint:
      enabled:
      - name: Dynamic
        weight: 3
  pluginConfig:
  - name: Dynamic
    args: {policyConfigPath: "` + d.policy + `", explainAddress: "` + d.explain + `"}
`})

	return d
}

// limit writes the policy with another limit.
func (d *dynamicScheduler) limit(t testing.TB, limit string) {
	t.Helper()

	if err := os.WriteFile(d.policy, []byte(strings.Replace(loadPolicy, "LIMIT", limit, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// explained returns the scheduler's explanation for a pod.
func (d *dynamicScheduler) explained(t testing.TB, pod string) nodeload.Explanation {
	t.Helper()

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.explain+"/explain/scheduling?pod="+url.QueryEscape("default/"+pod), nil)
	if err != nil {
		t.Fatal(err)
	}

	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()

	body, err := io.ReadAll(reply.Body)
	var answer struct{ Explanations []nodeload.Explanation }
	if err != nil || json.Unmarshal(body, &answer) != nil || len(answer.Explanations) != 1 {
		t.Fatalf("explanation: %v, want one: %s", err, body)
	}

	return answer.Explanations[0]
}

func load(value string, ago time.Duration) map[string]string {
	return map[string]string{"cpu_usage_avg_5m": value + "," + time.Now().Add(-ago).UTC().Format("2006-01-02T15:04:05Z")}
}

func (f *fixture) annotate(node string, annotations map[string]string) {
	f.Helper()

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		f.Fatal(err)
	}

	if _, err := f.client.CoreV1().Nodes().Patch(f.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		f.Fatal(err)
	}
}

// event waits for an event with the reason on an object, and returns its note.
func (f *fixture) event(namespace, name, reason string) string {
	f.Helper()

	var note string
	eventually(f, reason+" on "+name, func() string {
		list, err := f.client.EventsV1().Events(namespace).List(f.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}

		for _, e := range list.Items {
			if e.Regarding.Name == name && e.Reason == reason {
				note = e.Note
				return ""
			}
		}

		return fmt.Sprintf("not among %d events", len(list.Items))
	})

	return note
}

// TestHeldNode verifies that load which rebalancing holds on a node keeps other pods off it, lets the replacement of the evicted pod in, and
// ends with its annotation.
func TestHeldNode(t *testing.T) {
	s := startDynamic(t, "0.65")
	f := newFixture(t, s.scheduler)
	annotations := load("0.30000", 0)

	text, err := nodeload.FormatHolds([]nodeload.Hold{{
		Pod: "evicted", Workload: "default/ReplicaSet/web", CPU: 4000, Memory: 1 << 30, Until: time.Now().Add(5 * time.Minute).UTC().Truncate(time.Second),
	}})
	if err != nil {
		t.Fatal(err)
	}

	annotations[nodeload.HoldsKey] = text
	f.node("load-held", 10, annotations)
	f.pod("stranger", "1")
	f.awaitPending("stranger", "too much load by cpu_usage_avg_5m")
	f.pod("replacement", "1", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true)}}
	})

	if got := f.awaitPlaced("replacement").Spec.NodeName; got != "load-held" {
		t.Errorf("the replacement is on %s, want load-held", got)
	}

	f.annotate("load-held", load("0.31000", 0)) // any change makes the scheduler ask again
	f.awaitPlaced("stranger")
}

// TestHotNode: a hot node gets no pod, which is reported by an event; it gets one as soon as its load has dropped; and
// the scheduler explains both.
func TestHotNode(t *testing.T) {
	s := startDynamic(t, "0.65")
	f := newFixture(t, s.scheduler)
	f.node("load-hot", 10, load("0.80000", 0))
	f.node("load-cool", 10, load("0.20000", 0))

	for i := range 3 {
		name := fmt.Sprint("load-", i)
		f.pod(name, "100m")

		if pod := f.awaitPlaced(name); pod.Spec.NodeName != "load-cool" {
			t.Errorf("%s is on %s, want load-cool", name, pod.Spec.NodeName)
		}
	}

	if note := f.event("default", "load-0", "LoadAvoided"); !strings.HasPrefix(note, "1 of 2 nodes had too much load for this pod") {
		t.Errorf("event %q, want 1 of 2 nodes", note)
	}

	e := s.explained(t, "load-0")
	if len(e.Nodes) != 2 || e.Node != "load-cool" || e.Nodes[1].Name != "load-hot" || e.Nodes[1].Verdict != nodeload.Closed ||
		!strings.HasPrefix(e.Nodes[1].Reason(), "cpu_usage_avg_5m: load 80.0% + on its way 0.0% + this pod ") {
		t.Errorf("explained as %+v, want load-hot closed because of its CPU", e)
	}

	// The command prints the same.
	var out, errOut bytes.Buffer
	if code := cli.Main([]string{"crane", "explain", "scheduling", "load-0", "--scheduler", "http://" + s.explain}, strings.NewReader(""), &out, &errOut); code != 0 ||
		!strings.Contains(out.String(), "Pod default/load-0: placed on load-cool") || !strings.Contains(out.String(), "load-hot   Closed") {
		t.Errorf("crane explain scheduling: exit %d, want 0: %s\n%s", code, errOut.String(), out.String())
	}

	// A pod that fits only the hot node stays pending with the reason, and is scheduled before the scheduler's periodic
	// retry after five minutes.
	f.pod("load-waits", "100m", func(p *corev1.Pod) { p.Spec.NodeSelector["kubernetes.io/hostname"] = "load-hot" })
	f.annotateLabel("load-hot")
	f.awaitPending("load-waits", "1 node(s) had too much load by cpu_usage_avg_5m")
	f.annotate("load-hot", load("0.70000", 0))
	f.annotate("load-hot", load("0.30000", 0))
	f.awaitPlaced("load-waits")

	if got := s.metric(t, `crane_scheduler_dynamic_nodes{profile="`+s.name+`",state="fresh"}`); got != "2" {
		t.Errorf("%q nodes are fresh by the metric, want 2", got)
	}
}

// annotateLabel sets the node label that pods select; without it the pod is pending for another reason first.
func (f *fixture) annotateLabel(node string) {
	f.Helper()

	patch := `{"metadata":{"labels":{"kubernetes.io/hostname":"` + node + `"}}}`
	if _, err := f.client.CoreV1().Nodes().Patch(f.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		f.Fatal(err)
	}
}

// TestGarbageAnnotations: nodes with invalid annotations get pods like others and are counted. NaN counts neither as
// idle nor as full.
func TestGarbageAnnotations(t *testing.T) {
	s := startDynamic(t, "0.65")
	f := newFixture(t, s.scheduler)
	for i := range 5 {
		f.node(fmt.Sprint("good-", i), 10, load("0.40000", 0))
	}

	for name, text := range map[string]string{
		"nan": "NaN,2026-01-01T00:00:00Z", "negative": "-0.5,2026-01-01T00:00:00Z", "huge": "1e308,2026-01-01T00:00:00Z", "commas": "0.1,2,3",
	} {
		f.node("bad-"+name, 10, map[string]string{"cpu_usage_avg_5m": text})
	}

	f.node("bad-future", 10, load("0.10000", -10*time.Hour))
	on := map[string]int{}
	for i := range 20 {
		name := fmt.Sprint("garbage-", i)
		f.pod(name, "100m")
		on[f.awaitPlaced(name).Spec.NodeName]++
	}

	for node, pods := range on {
		if pods > 5 {
			t.Errorf("%d of 20 pods are on %s, want at most 5: %v", pods, node, on)
		}
	}

	if got := s.metric(t, `crane_scheduler_dynamic_unreadable_annotations_total{fault="value",profile="`+s.name+`"}`); got != "3" {
		t.Errorf("%q unreadable values are counted, want 3", got)
	}
}

// TestPolicyReload: a new file takes effect without a restart; an invalid one keeps the previous policy and emits an
// event.
func TestPolicyReload(t *testing.T) {
	s := startDynamic(t, "0.65")
	f := newFixture(t, s.scheduler)
	f.node("reload", 10, load("0.50000", 0))
	f.pod("reload-first", "100m")
	f.awaitPlaced("reload-first")
	s.limit(t, "0.40")

	eventually(t, "the new policy is in force", func() string {
		if got := s.metric(t, `crane_nodeload_policy_loads_total{result="loaded"}`); got != "2" {
			return got + " loads"
		}

		return ""
	})

	f.pod("reload-second", "100m")
	f.awaitPending("reload-second", "too much load by cpu_usage_avg_5m")

	if err := os.WriteFile(s.policy, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the empty file is refused", func() string {
		if got := s.metric(t, "crane_nodeload_policy_valid"); got != "0" {
			return "valid " + got
		}

		return ""
	})

	if note := f.event("crane-system", "crane-node-load-policy", "PolicyRefused"); !strings.Contains(note, "the file is empty") {
		t.Errorf("event %q, want that the file is empty", note)
	}

	f.pod("reload-third", "100m")
	f.awaitPending("reload-third", "too much load by cpu_usage_avg_5m")
	s.limit(t, "0.65")
	eventually(t, "the good policy is in force again", func() string {
		if got := s.metric(t, "crane_nodeload_policy_valid"); got != "1" {
			return "valid " + got
		}

		return ""
	})

	// Pending pods are retried at once, not after five minutes.
	f.awaitPlaced("reload-second")
	f.awaitPlaced("reload-third")
}

// TestPrometheusGone: an hour after the last sample the plugin abstains, whatever the old samples are.
func TestPrometheusGone(t *testing.T) {
	s := startDynamic(t, "0.65")
	f := newFixture(t, s.scheduler)
	f.node("gone-a", 10, load("0.99000", time.Hour))
	f.node("gone-b", 10, load("0.01000", time.Hour))

	on := map[string]int{}
	for i := range 8 {
		name := fmt.Sprint("gone-", i)
		f.pod(name, "1")
		on[f.awaitPlaced(name).Spec.NodeName]++
	}

	if on["gone-a"] != 4 || on["gone-b"] != 4 {
		t.Errorf("%v: want the default profile's placement, which is even by requests", on)
	}
	if got := s.metric(t, `crane_scheduler_dynamic_abstentions_total{profile="`+s.name+`"}`); got != "8" {
		t.Errorf("%q abstentions are counted, want 8", got)
	}
	if e := s.explained(t, "gone-0"); !e.Abstains || e.Stale != 2 {
		t.Errorf("explained as %+v, want an abstention with 2 stale nodes", e)
	}
}

// TestHistory: the recommendation of a workload is the expected use of its next pods.
func TestHistory(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := analysis.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	recommendations, err := ctrlclient.New(control.Config(), ctrlclient.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}

	s := startDynamic(t, "0.65")
	f := newFixture(t, s.scheduler)
	f.node("history", 10, load("0.20000", 0))
	r := &analysis.Recommendation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "history"},
		Spec: analysis.RecommendationSpec{
			Type: analysis.AnalysisTypeResource, TargetRef: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Namespace: "default", Name: "history"},
		},
	}

	if err := recommendations.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = recommendations.Delete(context.Background(), r) })
	r.Status.RecommendedValue = "resourceRequest:\n  containers:\n  - containerName: c\n    target: {cpu: 350m, memory: 1Gi}\n"
	if err := recommendations.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the workload is known", func() string {
		if got := s.metric(t, "crane_scheduler_dynamic_workloads_with_history"); got != "1" {
			return "workloads: " + got
		}

		return ""
	})

	yes := true
	f.pod("history-0", "500m", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "history", UID: "u", Controller: &yes}}
	})
	f.awaitPlaced("history-0")

	if e := s.explained(t, "history-0"); e.Basis != "history" || e.CPU != 350 || e.Memory != 1<<30 {
		t.Errorf("expected to use %dm and %d by %s", e.CPU, e.Memory, e.Basis)
	}
}
