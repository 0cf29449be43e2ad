// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/test/integration/harness"
)

// evictFixture is a node with a rule that evicts pods of a namespace above 8,000 MiB with a grace period of 7 s.
type evictFixture struct {
	*hostFixture

	name string
	c    client.Client
}

func newEvictFixture(t *testing.T, name string, used int) *evictFixture {
	t.Helper()

	c := newClient(t)
	f := &evictFixture{hostFixture: newHostFixture(t, c, used), name: namespace(t, c, name), c: c}
	action := soon(name)
	action.Spec.Eviction = &ensurancev1alpha1.EvictionAction{TerminationGracePeriodSeconds: new(int32(7))}
	q := nodeQOS(name, name, "memory_total_usage", "8000Mi")

	harness.Create(t, c, newNode(name), action, q, &ensurancev1alpha1.PodQOS{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: ensurancev1alpha1.PodQOSSpec{
			AllowedActions: []string{name}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"batch": name}},
		},
	})

	return f
}

// pod runs a pod with the given memory.
func (f *evictFixture) pod(name string, mib int) *corev1.Pod {
	f.t.Helper()

	pod := newPod(f.name, name)
	f.run(f.name, pod, mib)
	return pod
}

func (f *evictFixture) agent(flags ...string) *agent {
	f.t.Helper()
	return startAgent(f.t, f.name, append([]string{"--enforce=evict", "--eviction-budget=0", "--host-root=" + f.dir}, flags...)...)
}

// evicted waits until exactly the given pods are terminating.
func (f *evictFixture) evicted(want ...string) {
	f.t.Helper()

	eventually(f.t, fmt.Sprintf("evicted %v", want), func(ctx context.Context) error {
		got, err := ending(ctx, f.c, f.name)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%v are ending", got)
		}

		return err
	})
}

// awaitSnapshots waits until the agent has observed the node for some seconds.
func (a *agent) awaitSnapshots(t *testing.T, seconds float64) {
	t.Helper()

	first := -1.0
	eventually(t, "the agent looks on", func(ctx context.Context) error {
		text, err := a.metric(ctx, "crane_agent_observed_timestamp_seconds")
		if err != nil {
			return err
		}

		at, err := strconv.ParseFloat(text, 64)
		if first < 0 {
			first = at
		}
		if err == nil && at < first+seconds {
			err = errors.New("not yet")
		}

		return err
	})
}

// awaitMetric waits for a value of a series.
func (a *agent) awaitMetric(t *testing.T, series, want string) {
	t.Helper()

	eventually(t, series, func(ctx context.Context) error {
		got, err := a.metric(ctx, series)
		if err == nil && got != want {
			err = fmt.Errorf("is %s, want %s", got, want)
		}

		return err
	})
}

// TestEvictionPolicy checks that by default only pods are evicted that a controller replaces and that are not the last ones of their
// workloads, by the pods of the whole cluster.
func TestEvictionPolicy(t *testing.T) {
	f := newEvictFixture(t, "evict-policy", 7000)
	replica := func(kind, workload, name string) *corev1.Pod {
		p := newPod(f.name, name)
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: workload, UID: types.UID(workload), Controller: new(true)}}
		return p
	}

	f.pod("bare", 3000)
	f.run(f.name, replica("Job", "batch", "job"), 3000)
	f.run(f.name, replica("ReplicaSet", "single", "last"), 3000)
	f.run(f.name, replica("ReplicaSet", "web", "web-1"), 1500)

	// Of the bare pod alone there is no other one: each kind is protected for its own reason.
	for _, elsewhere := range []*corev1.Pod{replica("ReplicaSet", "web", "web-2"), replica("Job", "batch", "job-2")} {
		elsewhere.Spec.NodeName = "another-node"
		elsewhere.Spec.Containers = []corev1.Container{{Name: "main", Image: "i"}}
		harness.Create(t, f.c, elsewhere)

		elsewhere.Status.Phase = corev1.PodRunning
		elsewhere.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if err := f.c.Status().Update(t.Context(), elsewhere); err != nil {
			t.Fatal(err)
		}
	}

	a := f.agent("--evict-also=")
	a.awaitLog(t, "phase=calm", "evict-policy/memory")
	f.uses(9000)
	f.evicted("web-1")
	awaitEvent(t, f.c, "Pod", "last", "EvictionRefused", "no other pod of its workload is ready")
}

// TestOptedOut checks that pods of a namespace or a workload with the opt-out label are not evicted, though they are larger, as long as there
// is the label.
func TestOptedOut(t *testing.T) {
	f := newEvictFixture(t, "evict-optout", 7000)
	list := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: optout.ConfigMapName},
		Data:       map[string]string{optout.KeyWorkloads: "StatefulSet evict-optout/db\n"},
	}

	quiet := namespace(t, f.c, "evict-optout-quiet")
	label := func(value *string) {
		t.Helper()

		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]*string{"crane.io/opt-out": value}}})
		if err != nil {
			t.Fatal(err)
		}

		if err := f.c.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: quiet}}, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
	}

	label(new("true"))
	harness.Create(t, f.c, list)
	excluded := newPod(quiet, "excluded")
	excluded.Labels["batch"] = f.name
	f.run(f.name, excluded, 3000)
	member := newPod(f.name, "db-0")
	member.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "db", Controller: new(true)}}
	f.run(f.name, member, 3000)

	f.pod("small", 500)
	a := f.agent("--evict-also=bare-pods,last-replicas")
	a.awaitLog(t, "phase=calm", "evict-optout/memory")
	f.uses(9000)
	f.evicted("small")
	a.awaitSnapshots(t, 3)

	if got, err := ending(t.Context(), f.c, quiet); err != nil || len(got) > 0 {
		t.Errorf("%v of a namespace that has opted out are ending, %v, want none", got, err)
	}

	f.evicted("small")
	label(nil)
	f.forget(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.name, Name: "small"}})

	eventually(t, "the pod of the namespace is evicted without the label", func(ctx context.Context) error {
		got, err := ending(ctx, f.c, quiet)
		if err == nil && !slices.Equal(got, []string{"excluded"}) {
			err = fmt.Errorf("%v are ending", got)
		}

		return err
	})
}

// TestEvict checks that the largest permitted pod is evicted with the action's grace period, and no other while it terminates; static,
// mirror, DaemonSet, critical and unselected pods are exempt.
func TestEvict(t *testing.T) {
	f := newEvictFixture(t, "evict", 7000)
	small := f.pod("small", 500)
	large := f.pod("large", 1500)

	for name, change := range map[string]func(*corev1.Pod){
		"mirror": func(p *corev1.Pod) {
			p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": "0d1f2e3c4b5a69788796a5b4c3d2e1ff", "kubernetes.io/config.source": "file"}
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: f.name, UID: "node", Controller: new(true)}}
		},
		"of-daemonset": func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "x", UID: "x", Controller: new(true)}}
		},
		"critical":  func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" },
		"important": func(p *corev1.Pod) { p.Labels = nil },
	} {
		pod := newPod(f.name, name)
		change(pod)
		f.run(f.name, pod, 3000)
	}

	audit := filepath.Join(t.TempDir(), "audit.log")
	a := f.agent("--audit-file=" + audit)
	a.awaitLog(t, "phase=calm", "evict/memory")
	f.uses(9000)
	f.evicted("large")

	if err := f.c.Get(t.Context(), client.ObjectKeyFromObject(large), large); err != nil || *large.DeletionGracePeriodSeconds != 7 {
		t.Errorf("%v: grace period %v, want 7", err, large.DeletionGracePeriodSeconds)
	}
	if !slices.ContainsFunc(large.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Reason == "EvictionByEvictionAPI"
	}) {
		t.Errorf("conditions %+v, want DisruptionTarget by the eviction API", large.Status.Conditions)
	}

	// No other pod is evicted while it terminates.
	a.awaitSnapshots(t, 3)
	f.evicted("large")
	awaitEvent(t, f.c, "Pod", "large", "Evicted", "evicted with 7s to end", "rule evict/memory, action evict", "uses 1500 MiB memory")
	awaitEvent(t, f.c, "Node", "evict", "AvoidanceTriggered", "evict/memory triggered action evict", "evicts evict/large")
	a.awaitMetric(t, "crane_craneAgent_executor_evict_total", "1")
	a.awaitMetric(t, `crane_agent_actions_total{action="evict",outcome="done"}`, "1")
	f.uses(7500)
	f.end(large)
	awaitEvent(t, f.c, "Node", "evict", "RestoreTriggered", "evict/memory restored action evict")

	// A removed pod no longer counts as pending.
	f.uses(8300)
	f.evicted("small")
	f.end(small)
	a.awaitSnapshots(t, 3)
	f.evicted()
	awaitEvent(t, f.c, "Node", "evict", "EvictionWithheld", "no pod to evict", "3 are never evicted")

	var evicted []string
	for _, r := range auditLines(t, audit) {
		if r["action"] == "evict" && r["outcome"] == "done" {
			evicted = append(evicted, r["pod"].(string))
			if r["graceSeconds"] != 7.0 || r["rule"] != "evict/memory" || r["avoidanceAction"] != "evict" || r["node"] != "evict" || r["freesBytes"].(float64) < 500<<20 || r["why"] == "" {
				t.Errorf("audit record %v, want an eviction with its rule, reason and grace of 7 s", r)
			}
		}
	}

	if !slices.Equal(evicted, []string{"large", "small"}) {
		t.Errorf("the audit has %v, want large, then small", evicted)
	}
}

func auditLines(t *testing.T, path string) (out []map[string]any) {
	t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	for line := range strings.Lines(string(content)) {
		r := map[string]any{}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("parsing the audit line %q: %v", line, err)
		}

		out = append(out, r)
	}

	return out
}

// TestEvictDisruptionBudget checks that the next pod is evicted if one or two disruption budgets protect a pod.
func TestEvictDisruptionBudget(t *testing.T) {
	f := newEvictFixture(t, "evict-pdb", 9000)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.name, Name: "keep"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"keep": "true"}},
		},
	}

	harness.Create(t, f.c, budget)
	// As the controller does.
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, DesiredHealthy: 1, CurrentHealthy: 1, ExpectedPods: 1}
	if err := f.c.Status().Update(t.Context(), budget); err != nil {
		t.Fatal(err)
	}

	// The API server refuses a pod with two budgets by an internal error.
	for _, name := range []string{"one", "other"} {
		harness.Create(t, f.c, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.name, Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"keep": "twice"}}},
		})
	}

	twice := newPod(f.name, "twice")
	twice.Labels["keep"] = "twice"
	f.run(f.name, twice, 2500)
	kept := newPod(f.name, "kept")
	kept.Labels["keep"] = "true"
	f.run(f.name, kept, 2000)
	f.pod("next", 1500)

	f.pod("last", 1200)
	a := f.agent()
	f.evicted("next")
	awaitEvent(t, f.c, "Pod", "kept", "EvictionRefused", "The disruption budget keep needs 1 healthy pods and has 1 currently")
	awaitEvent(t, f.c, "Pod", "twice", "EvictionRefused", "more than one PodDisruptionBudget")
	a.awaitSnapshots(t, 2)
	f.evicted("next")
	a.awaitMetric(t, `crane_agent_actions_total{action="evict",outcome="done"}`, "1")
}

// TestEvictWaterMark checks that no pod is evicted below the scheduler's water mark, and the event with the reason.
func TestEvictWaterMark(t *testing.T) {
	f := newEvictFixture(t, "evict-mark", 9000)
	f.pod("batch", 1500)
	a := f.agent("--policy-config-path=../../../examples/dynamic-scheduler-policy.yaml")
	awaitEvent(t, f.c, "Node", "evict-mark", "AvoidanceTriggered", "no pod is evicted: 56.2 % of memory is used, the water mark is")
	awaitEvent(t, f.c, "Node", "evict-mark", "EvictionWithheld", "the water mark is")
	a.awaitSnapshots(t, 3)
	f.evicted()
	a.awaitMetric(t, `crane_agent_evictions_withheld_total{by="water-mark",rule="evict-mark/memory"}`, "1")
}

// TestEvictPreview checks that a rule in preview reports and counts its evictions.
func TestEvictPreview(t *testing.T) {
	f := newEvictFixture(t, "evict-preview", 9000)
	var q ensurancev1alpha1.NodeQOS
	q.Name = f.name
	change(t, f.c, &q, func(q *ensurancev1alpha1.NodeQOS) {
		q.Spec.Rules[0].Strategy = ensurancev1alpha1.AvoidanceActionStrategyPreview
	})

	f.pod("batch", 1500)
	a := f.agent()
	awaitEvent(t, f.c, "Node", "evict-preview", "AvoidanceTriggered", "in preview, nothing is done; would evict evict-preview/batch")
	a.awaitMetric(t, `crane_agent_preview_actions_total{action="evict",rule="evict-preview/memory"}`, "1")
	a.awaitSnapshots(t, 3)
	f.evicted()
	a.awaitMetric(t, `crane_agent_preview_actions_total{action="evict",rule="evict-preview/memory"}`, "1")
	a.awaitLog(t, "action=evict", "outcome=preview", "evict-preview/batch")
}

// TestOutage checks that nothing is evicted or written while the API server is down, and that exactly the first pod is evicted and the
// node tainted afterward.
func TestOutage(t *testing.T) {
	f := newEvictFixture(t, "evict-outage", 7000)
	f.pod("first", 1500)
	f.pod("second", 1400)
	a := f.agent("--enforce=evict,taint")
	a.awaitLog(t, "phase=calm", "evict-outage/memory")
	back := outage(t)
	f.uses(9000)

	a.awaitLog(t, "action=evict", "outcome=failed", "the API server has not")
	a.awaitLog(t, "updating the taint or condition of the node")
	back()
	f.evicted("first")
	becomes(t, f.c, f.name, true)
	a.awaitSnapshots(t, 3)
	f.evicted("first")
}

// TestEvictAnotherPod checks that a pod of the same name with another UID is not evicted.
func TestEvictAnotherPod(t *testing.T) {
	f := newEvictFixture(t, "evict-another", 7000)
	f.pod("web-0", 1500)

	client, err := kubernetes.NewForConfig(control.Config())
	if err != nil {
		t.Fatal(err)
	}

	evictor := act.NewEvictor(act.EvictorConfig{Client: act.APIEvictionClient{Client: client}, Clock: clock.RealClock{}, Log: logr.Discard(), Beat: func(string) {}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- evictor.Run(ctx) }()

	for name, want := range map[string]act.Result{"web-0": act.Gone, "web-1": act.Gone} {
		evictor.Enqueue(qos.Eviction{Pod: qos.PodRef{UID: "of-the-last-one", Namespace: f.name, Name: name}})
		var out []act.EvictionOutcome
		eventually(t, "an answer", func(context.Context) error {
			if out = append(out, evictor.Drain()...); len(out) == 0 {
				return errors.New("none yet")
			}

			return nil
		})

		if out[0].Result != want || out[0].Pause > 0 {
			t.Errorf("eviction of %s = %+v, want result %v without a pause", name, out, want)
		}
	}

	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}

	f.evicted()
}

// TestUnfriendly checks evictions and taints with an API server that rejects every second write as too busy or with a conflict.
func TestUnfriendly(t *testing.T) {
	f := newEvictFixture(t, "unfriendly", 7000)
	first := f.pod("first", 1500)
	f.pod("second", 1400)
	proxy := harness.ServeUnfriendly(t, control)
	a := f.agent("--enforce=evict,taint", "--kubeconfig="+proxy.Kubeconfig(t, "crane-agent", controlplane.ServiceAccount("crane-system", "crane-agent")))
	a.awaitLog(t, "phase=calm", "unfriendly/memory")
	f.uses(9000)

	f.evicted("first")
	becomes(t, f.c, f.name, true)
	a.awaitSnapshots(t, 2)
	f.evicted("first")
	f.uses(1000)
	f.end(first)
	becomes(t, f.c, f.name, false)
	proxy.Check(t)
}

// TestEvictBudget checks that the agents of two nodes share the cluster's budget.
func TestEvictBudget(t *testing.T) {
	flags := []string{"--eviction-budget=1", "--eviction-budget-window=1h"}
	one := newEvictFixture(t, "evict-one", 9000)
	two := newEvictFixture(t, "evict-two", 9000)
	t.Cleanup(func() {
		if err := one.c.DeleteAllOf(context.WithoutCancel(t.Context()), &coordinationv1.Lease{}, client.InNamespace("crane-system"), client.HasLabels{"crane.io/eviction-budget"}); err != nil {
			t.Error(err)
		}
	})

	one.pod("batch", 1500)
	two.pod("batch", 1500)
	one.agent(flags...)
	one.evicted("batch")
	second := two.agent(flags...)
	awaitEvent(t, two.c, "Node", "evict-two", "EvictionWithheld", "the cluster's budget of 1 evictions within 1h0m0s is used up")
	second.awaitSnapshots(t, 3)
	two.evicted()

	if err := second.Terminate(t); err != nil {
		t.Fatal(err)
	}

	var lease coordinationv1.Lease
	if err := one.c.Get(t.Context(), client.ObjectKey{Namespace: "crane-system", Name: "crane-agent-eviction-0"}, &lease); err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "evict-one" {
		t.Fatalf("lease: %v, %+v, want evict-one as holder", err, lease.Spec)
	}

	// As if an hour had passed.
	lease.Spec.RenewTime = new(metav1.NewMicroTime(lease.Spec.RenewTime.Add(-2 * 60 * 60 * 1e9)))
	if err := one.c.Update(t.Context(), &lease); err != nil {
		t.Fatal(err)
	}

	two.agent(flags...)
	two.evicted("batch")
	one.evicted("batch")
}

// TestEvictRestart checks that an agent restarted while its victim terminates evicts no other pod.
func TestEvictRestart(t *testing.T) {
	f := newEvictFixture(t, "evict-kill", 9000)
	f.pod("first", 1500)
	f.pod("second", 1400)
	a := f.agent()
	f.evicted("first")
	a.Kill()
	again := f.agent()
	again.awaitLog(t, "phase=firing", "evict-kill/memory")
	again.awaitSnapshots(t, 3)
	f.evicted("first")
}

// asAgent returns a client with the agent's permissions.
func asAgent(t *testing.T) client.Client {
	t.Helper()

	config, err := control.ConfigFor(t.Context(), controlplane.ServiceAccount("crane-system", "crane-agent"))
	if err != nil {
		t.Fatal(err)
	}

	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// TestLeasesOfOthers checks that the agent may write only the Leases of its budget.
func TestLeasesOfOthers(t *testing.T) {
	c := newClient(t)
	harness.Create(t, c, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: "craned-of-a-test"}})
	own := asAgent(t)

	eventually(t, "the policy of leases holds", func(ctx context.Context) error {
		var lease coordinationv1.Lease
		if err := c.Get(ctx, client.ObjectKey{Namespace: "crane-system", Name: "craned-of-a-test"}, &lease); err != nil {
			return err
		}

		lease.Spec.HolderIdentity = new("me")
		if err := own.Update(ctx, &lease); err == nil || !strings.Contains(err.Error(), "leases of its budget of evictions alone") {
			return fmt.Errorf("the lease of craned can be taken: %w", err)
		}

		return nil
	})

	mine := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: "crane-agent-eviction-77"}}
	if err := own.Create(t.Context(), mine); err != nil {
		t.Error(err)
	}
	if err := c.Delete(t.Context(), mine); err != nil {
		t.Error(err)
	}
}

// TestLeasesOfOtherNodes checks that an agent creates no Leases but those of slots, and that it frees slots of its own node alone.
func TestLeasesOfOtherNodes(t *testing.T) {
	c := newClient(t)
	own := harness.PodToken(t, control, "lease-own").CoordinationV1().Leases("crane-system")
	newLease := func(name, holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new(holder)}}
	}
	mine := newLease("crane-agent-eviction-998", "lease-own")
	theirs := newLease("crane-agent-eviction-999", "lease-other")
	harness.Create(t, c, mine, theirs)
	const policy = "'crane-agent-leases'"

	free := func(ctx context.Context, lease *coordinationv1.Lease, holder *string) error {
		freed := lease.DeepCopy()
		freed.Spec.HolderIdentity = holder
		_, err := own.Update(ctx, freed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})

		return err
	}

	refused := map[string]func(context.Context) error{
		"a slot of another node":            func(ctx context.Context) error { return free(ctx, theirs, nil) },
		"an empty holder of another's slot": func(ctx context.Context) error { return free(ctx, theirs, new("")) },
	}

	for _, name := range []string{"crane-agent-eviction-1000", "crane-agent-eviction-00", "crane-agent-eviction-x", "crane-agent-eviction-1.2"} {
		refused[name] = func(ctx context.Context) error {
			_, err := own.Create(ctx, newLease(name, "lease-own"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
	}

	for name, write := range refused {
		t.Run(name, func(t *testing.T) {
			eventually(t, "refused", func(ctx context.Context) error {
				if err := write(ctx); err == nil || !strings.Contains(err.Error(), policy) {
					return fmt.Errorf("want a refusal by policy %s: %w", policy, fmt.Errorf("%v", err))
				}

				return nil
			})
		})
	}

	if err := free(t.Context(), mine, nil); err != nil {
		t.Errorf("its own slot: %v", err)
	}
	if err := free(t.Context(), theirs, new("lease-own")); err != nil {
		t.Errorf("a slot to take: %v", err)
	}
}
