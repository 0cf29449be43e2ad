// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// nodeQOS returns a NodeQOS for the nodes of a pool with a rule on memory in percent.
func nodeQOS(name, pool, metric, value string) *ensurancev1alpha1.NodeQOS {
	return &ensurancev1alpha1.NodeQOS{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: ensurancev1alpha1.NodeQOSSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}},
			Rules: []ensurancev1alpha1.Rule{{
				Name: "memory", AvoidanceActionName: name, MetricRule: &ensurancev1alpha1.MetricRule{Name: metric, Value: resource.MustParse(value)},
			}},
		},
	}
}

func avoidance(name string) *ensurancev1alpha1.AvoidanceAction {
	return &ensurancev1alpha1.AvoidanceAction{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

const halfUsed = "memory_total_utilization"

// change updates an object until there is no conflict.
func change[T client.Object](t *testing.T, c client.Client, o T, apply func(T)) {
	t.Helper()

	eventually(t, "update "+o.GetName(), func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}

		apply(o)
		return c.Update(ctx, o)
	})
}

// TestRulesChange checks rules that are created, changed, deselected and deleted at run time.
func TestRulesChange(t *testing.T) {
	c := newClient(t)
	node := newNode("changes")
	harness.Create(t, c, node)
	a := startAgent(t, node.Name)
	q := nodeQOS("changes", "changes", halfUsed, "40")
	harness.Create(t, c, avoidance("changes"), q)
	a.awaitLog(t, "phase=firing", "changes/memory")
	change(t, c, q, func(q *ensurancev1alpha1.NodeQOS) { q.Spec.Rules[0].MetricRule.Value = resource.MustParse("99.5") })
	a.awaitLog(t, "phase=calm", "changes/memory", "99.5")

	// The node leaves the pool: no rule applies.
	change(t, c, node, func(n *corev1.Node) { n.Labels["pool"] = "another" })
	change(t, c, q, func(q *ensurancev1alpha1.NodeQOS) { q.Spec.Rules[0].MetricRule.Value = resource.MustParse("30") })
	change(t, c, node, func(n *corev1.Node) { n.Labels["pool"] = "changes" })
	a.awaitLog(t, "phase=firing", "changes/memory", "threshold=30")
}

// TestBadRules checks that a bad rule is reported and others apply.
func TestBadRules(t *testing.T) {
	c := newClient(t)
	harness.Create(t, c, newNode("bad-rules"))
	a := startAgent(t, "bad-rules")
	typo := nodeQOS("bad-rules-typo", "bad-rules", "memory_total_utilisation", "40")
	harness.Create(t, c, typo, nodeQOS("bad-rules-good", "bad-rules", halfUsed, "40"), avoidance("bad-rules-good"))
	a.awaitLog(t, "NodeQOS bad-rules-typo", "memory_total_utilisation", "never fires")
	a.awaitLog(t, "NodeQOS bad-rules-typo", "does not exist")
	a.awaitLog(t, "phase=firing", "bad-rules-good/memory")

	if _, err := harness.Get(t.Context(), a.url+"/healthz"); err != nil {
		t.Error(err)
	}

	// The corrected rule applies without a restart.
	change(t, c, typo, func(q *ensurancev1alpha1.NodeQOS) { q.Spec.Rules[0].MetricRule.Name = halfUsed })
	a.awaitLog(t, "phase=firing", "bad-rules-typo/memory")
}

// TestProbesAndMetrics checks probes, metrics and the Node's features.
func TestProbesAndMetrics(t *testing.T) {
	c := newClient(t)
	harness.Create(t, c, newNode("health"))

	a := startAgent(t, "health")
	for path, want := range map[string]string{"/health-check": "OK", "/healthz": "OK", "/readyz": "ok"} {
		if body, err := harness.Get(t.Context(), a.url+path); err != nil || body != want {
			t.Errorf("GET %s = %q, %v, want %q", path, body, err, want)
		}
	}

	if _, err := harness.Get(t.Context(), a.url+"/debug/pprof/"); err == nil {
		t.Error("profiles are served, want them only on request")
	}

	eventually(t, "metrics", func(ctx context.Context) error {
		for _, series := range []string{
			`crane_craneAgent_last_activity{module="ActionExecutor",step="act",subcomponent=""}`, `crane_craneAgent_step_duration_seconds_count{module="StateCollector",step="look",subcomponent=""}`,
			`crane_agent_feature{feature="cgroups",state="on"}`, "crane_agent_observed_pods",
		} {
			if _, err := a.metric(ctx, series); err != nil {
				return err
			}
		}

		return nil
	})

	eventually(t, "the annotation of features", func(ctx context.Context) error {
		var n corev1.Node
		if err := c.Get(ctx, client.ObjectKey{Name: "health"}, &n); err != nil {
			return err
		}

		features := map[string]string{}
		if err := json.Unmarshal([]byte(n.Annotations[ensurancev1alpha1.AnnotationAgentFeatures]), &features); err != nil {
			return err
		}

		if features["cgroups"] != "on: cgroup v2, driver systemd" || !strings.HasPrefix(features["enforce-cpu-throttle"], "off: --dry-run") {
			return fmt.Errorf("features %v", features)
		}

		return nil
	})

	if err := a.Terminate(t); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// TestAPIServerGoesAway checks that known rules stay during an outage and changes apply afterwards, and that an agent started meanwhile
// reports what is unknown.
func TestAPIServerGoesAway(t *testing.T) {
	c := newClient(t)
	node := newNode("outage")
	q := nodeQOS("outage", "outage", halfUsed, "40")
	harness.Create(t, c, node, newNode("alone"), q, avoidance("outage"), nodeQOS("alone", "alone", halfUsed, "40"), avoidance("alone"))
	path := kubeconfig(t)
	a := startAgent(t, node.Name, "--kubeconfig="+path)
	a.awaitLog(t, "phase=firing", "outage/memory")
	back := outage(t)
	a.awaitLog(t, "watch failed", "NodeQOS", "the last known objects are kept")

	if strings.Contains(a.Log.String(), "phase=calm") {
		t.Error("a rule became calm with the API server away, want it firing")
	}
	if _, err := harness.Get(t.Context(), a.url+"/healthz"); err != nil {
		t.Error(err)
	}

	alone := startAgent(t, "alone", "--kubeconfig="+path)
	alone.awaitLog(t, "watch failed", "Node alone", "no objects are known")
	alone.awaitLog(t, "the node is unknown, so no rule applies")

	if strings.Contains(alone.Log.String(), "phase=firing") {
		t.Error("a rule fires on an unknown node, want none")
	}

	back()
	change(t, c, q, func(q *ensurancev1alpha1.NodeQOS) { q.Spec.Rules[0].MetricRule.Value = resource.MustParse("99") })
	a.awaitLog(t, "watch recovered", "NodeQOS")
	a.awaitLog(t, "phase=calm", "outage/memory")
	alone.awaitLog(t, "phase=firing", "alone/memory")
}

// TestRestart checks that a restarted agent continues.
func TestRestart(t *testing.T) {
	c := newClient(t)
	harness.Create(t, c, newNode("restart"), nodeQOS("restart", "restart", halfUsed, "40"), avoidance("restart"))
	state := t.TempDir()
	flags := []string{"--state-dir=" + state, "--enforce=cpu-throttle"}
	first := startAgent(t, "restart", flags...)
	first.awaitLog(t, "phase=firing", "restart/memory")

	if err := first.Terminate(t); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}

	second := startAgent(t, "restart", flags...)
	second.awaitLog(t, "phase=firing", "restart/memory")
}

// TestForeignNode checks that a missing Node is reported with its name.
func TestForeignNode(t *testing.T) {
	a := startAgent(t, "nobody")
	a.awaitLog(t, "there is no Node nobody")

	if _, err := harness.Get(t.Context(), a.url+"/health-check"); err != nil {
		t.Errorf("GET /health-check = %v, want no error: the agent is healthy without a Node", err)
	}
}

// TestWithoutKinds checks that the agent runs and reports a missing kind; internal/agent/cluster tests its later discovery.
func TestWithoutKinds(t *testing.T) {
	definitions := definitionsClient(t)
	const name = "podqoss.ensurance.crane.io"
	uninstall(t, definitions, name)
	eventually(t, "the definition goes", func(ctx context.Context) error {
		if _, err := definitions.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.New("it is there")
		}

		return nil
	})

	c := newClient(t)
	harness.Create(t, c, newNode("bare"), nodeQOS("bare", "bare", halfUsed, "40"), avoidance("bare"))
	a := startAgent(t, "bare")
	a.awaitLog(t, "watch failed", "PodQOS", "CustomResourceDefinition is not installed")
	a.awaitLog(t, "phase=firing", "bare/memory")
}
