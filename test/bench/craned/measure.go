// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/test/bench/measure"
)

type measurement struct {
	options
	data    *data
	cluster *cluster
	craned  *craned
}

// counted is what had happened at one time.
type counted struct {
	at      time.Time
	queries int64
	writes  map[string]int64
	cpu     time.Duration
}

func (m *measurement) count(ctx context.Context) (counted, error) {
	c := counted{at: time.Now()}
	var err error
	if c.queries, err = m.data.requests(ctx); err != nil {
		return c, err
	}
	if c.writes, err = measure.Writes(ctx, m.cluster.rest); err != nil {
		return c, err
	}
	c.cpu, err = measure.CPU(m.craned.cmd.Process.Pid)
	return c, err
}

// report prints what has happened since.
func (m *measurement) report(ctx context.Context, what string, since counted) error {
	now, err := m.count(ctx)
	if err != nil {
		return err
	}
	peak, err := measure.Memory(m.craned.cmd.Process.Pid, "VmHWM")
	if err != nil {
		return err
	}
	wall := now.at.Sub(since.at)
	fmt.Printf("%s: wall %v, craned %v CPU (%.4f of a core), %d queries, peak memory so far %d MiB\n", what, wall.Round(100*time.Millisecond),
		(now.cpu - since.cpu).Round(10*time.Millisecond), (now.cpu-since.cpu).Seconds()/wall.Seconds(), now.queries-since.queries, peak>>20)
	total := int64(0)
	for _, key := range slices.Sorted(maps.Keys(now.writes)) {
		if n := now.writes[key] - since.writes[key]; n > 0 {
			fmt.Printf("    %7d %s\n", n, key)
			total += n
		}
	}
	fmt.Printf("    %7d writes in all, leases left out\n", total)
	return nil
}

const ruleName = "bench"

// pass runs a rule over all workloads once.
func (m *measurement) pass(ctx context.Context) error {
	before, err := m.count(ctx)
	if err != nil {
		return err
	}
	rule := &analysisv1alpha1.RecommendationRule{
		ObjectMeta: metav1.ObjectMeta{Name: ruleName},
		Spec: analysisv1alpha1.RecommendationRuleSpec{
			ResourceSelectors: []analysisv1alpha1.ResourceSelector{{Kind: "Deployment", APIVersion: "apps/v1"}},
			NamespaceSelector: analysisv1alpha1.NamespaceSelector{Any: true},
			RunInterval:       "24h",
			// Gocrane's settings look at the 7 days that there are.
			Recommenders: []analysisv1alpha1.Recommender{{Name: "Resource", Config: map[string]string{"cpu-request-margin-fraction": "0.15"}}},
		},
	}
	if err := m.cluster.client.Create(ctx, rule); err != nil {
		return err
	}
	if err := m.complete(ctx, 1); err != nil {
		return err
	}
	if err := m.report(ctx, "one pass of Resource, from the rule to its status", before); err != nil {
		return err
	}
	var list analysisv1alpha1.RecommendationList
	if err := m.cluster.client.List(ctx, &list); err != nil {
		return err
	}
	ready := 0
	for i := range list.Items {
		if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, analysisv1alpha1.ConditionReady) {
			ready++
		}
	}
	fmt.Printf("    %d recommendations, %d of them ready\n", len(list.Items), ready)
	return m.settle(ctx, before)
}

// settle waits until the workloads carry their annotations: until nothing has been written for some seconds.
func (m *measurement) settle(ctx context.Context, since counted) error {
	last, err := measure.Writes(ctx, m.cluster.rest)
	if err != nil {
		return err
	}
	for still := 0; still < 5; {
		if err := sleep(ctx, 3*time.Second); err != nil {
			return err
		}
		now, err := measure.Writes(ctx, m.cluster.rest)
		if err != nil {
			return err
		}
		if maps.Equal(now, last) {
			still++
		} else {
			still = 0
		}
		last = now
	}
	return m.report(ctx, "until the workloads were annotated as well, and 15s more", since)
}

// again runs a second round, in which the numbers are those of the first or next to it.
func (m *measurement) again(ctx context.Context) error {
	before, err := m.count(ctx)
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runInterval":"23h"}}`))
	rule := &analysisv1alpha1.RecommendationRule{ObjectMeta: metav1.ObjectMeta{Name: ruleName}}
	if err := m.cluster.client.Patch(ctx, rule, patch); err != nil {
		return err
	}
	if err := m.complete(ctx, 2); err != nil {
		return err
	}
	return m.settle(ctx, before)
}

// complete waits for the end of a round.
func (m *measurement) complete(ctx context.Context, round int32) error {
	ctx, cancel := context.WithTimeout(ctx, m.bound)
	defer cancel()
	rule := &analysisv1alpha1.RecommendationRule{}
	for {
		if err := m.cluster.client.Get(ctx, client.ObjectKey{Name: ruleName}, rule); err != nil {
			return err
		}
		if rule.Status.RunNumber >= round {
			return nil
		}
		if err := m.craned.alive(); err != nil {
			return err
		}
		if err := sleep(ctx, time.Second); err != nil {
			return fmt.Errorf("round %d did not end: %w; %+v", round, err, rule.Status)
		}
	}
}

// quietly looks while nothing changes.
func (m *measurement) quietly(ctx context.Context) error {
	before, err := m.count(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, m.quiet); err != nil {
		return err
	}
	return m.report(ctx, fmt.Sprintf("%v in which nothing changed", m.quiet), before)
}

// rollOut changes the templates of workloads again and again, each time with a new pod in the place of the last one.
func (m *measurement) rollOut(ctx context.Context) error {
	var early, late int64
	for i := range m.rollOuts {
		err := m.cluster.each(ctx, m.rolled, func(ctx context.Context, w int) error { return m.cluster.roll(ctx, w, i) })
		if err != nil {
			return err
		}
		if n := i + 1; n == m.rollOuts/5 || n == m.rollOuts {
			if err := sleep(ctx, 10*time.Second); err != nil { // What was written arrives.
				return err
			}
			if late, err = m.craned.heap(ctx); err != nil {
				return err
			}
			if early == 0 {
				early = late
			}
			fmt.Printf("heap after a collection, after roll-out %d of %d workloads: %.1f MiB (%+.1f %%)\n", n, m.rolled, float64(late)/(1<<20), 100*(float64(late)/float64(early)-1))
		}
	}
	return nil
}

// roll changes one workload's template and replaces its pod.
func (c *cluster) roll(ctx context.Context, w, round int) error {
	d := c.deployment(w)
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"rolled":"%d"}}}}}`, round)
	if err := c.client.Patch(ctx, d, client.RawPatch(types.StrategicMergePatchType, []byte(patch))); err != nil {
		return err
	}
	pod := func(round int) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: fmt.Sprintf("%s-%08x-xxxxx", d.Name, round), Labels: d.Labels},
			Spec:       d.Spec.Template.Spec,
		}
	}
	if err := c.client.Create(ctx, pod(round)); err != nil || round == 0 {
		return err
	}
	return client.IgnoreNotFound(c.client.Delete(ctx, pod(round-1), client.GracePeriodSeconds(0)))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
