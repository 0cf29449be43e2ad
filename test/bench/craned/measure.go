// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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
	table   table
}

const ruleName = "bench"

// firstRun runs a rule over all workloads once.
func (m *measurement) firstRun(ctx context.Context) error {
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

	profiled := make(chan error, 2)
	go func() { profiled <- m.craned.profile(ctx, m.profiles, "cpu.pb.gz", "profile?seconds=60") }()
	go func() { profiled <- m.cluster.profile(ctx, m.profiles) }()

	after, err := m.complete(ctx, "one run", 1, before)
	if err != nil {
		return err
	}

	ready, all, err := m.ready(ctx)
	if err != nil {
		return err
	}

	m.table.add("one run of Resource, from the rule to its status", wallOf(before, after), "5 min")
	m.table.add("  recommendations, of them ready", fmt.Sprintf("%d, %d", all, ready), "")
	m.spent("  ", after.since(before))

	if after, err = m.settle(ctx); err != nil {
		return err
	}

	m.table.add("until the last workload was annotated", wallOf(before, after), "")
	m.writes(after.since(before), all)
	m.table.add("  peak memory of craned", fmt.Sprintf("%d MiB", after.peak>>20), "1024 MiB")

	if err := errors.Join(<-profiled, <-profiled); err != nil {
		return err
	}

	return m.craned.profile(ctx, m.profiles, "heap.pb.gz", "heap?gc=1")
}

func wallOf(before, after counters) string {
	return after.at.Sub(before.at).Round(time.Second).String()
}

// ready counts the Recommendations, and those with a number.
func (m *measurement) ready(ctx context.Context) (ready, all int, err error) {
	var list analysisv1alpha1.RecommendationList
	if err := m.cluster.client.List(ctx, &list); err != nil {
		return 0, 0, err
	}

	for i := range list.Items {
		if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, analysisv1alpha1.ConditionReady) {
			ready++
		}
	}

	return ready, len(list.Items), nil
}

// spent records the cost of a run.
func (m *measurement) spent(indent string, d counters) {
	m.table.add(indent+"queries", fmt.Sprint(d.queries), "")
	m.table.add(indent+"CPU of craned, the API server, Prometheus", fmt.Sprintf("%.0f s, %.0f s, %.0f s", d.craned.Seconds(), d.server.Seconds(), d.prometheus.Seconds()), "")
}

// writes notes what was written of each of so many Recommendations.
func (m *measurement) writes(d counters, recommendations int) {
	share := func(n int64) string { return fmt.Sprintf("%.3f", float64(n)/float64(max(1, recommendations))) }
	others := maps.Clone(d.writes)
	sum := func(verbs ...string) (n int64) {
		for _, v := range verbs {
			n += d.writes[v]
			delete(others, v)
		}

		return n
	}

	objects := sum("POST recommendations", "PATCH recommendations", "PUT recommendations", "APPLY recommendations")
	statuses := sum("PATCH recommendations/status", "PUT recommendations/status", "APPLY recommendations/status")
	annotations := sum("APPLY deployments", "PATCH deployments", "PUT deployments")
	m.table.add("  writes of the object, for each recommendation", share(objects), "1")
	m.table.add("  writes of its status, likewise", share(statuses), "1")
	m.table.add("  writes of the annotated workload, likewise", share(annotations), "1")
	m.table.add("  all other writes", fmt.Sprintf("%d: %s", d.total()-objects-statuses-annotations, listed(others)), "")
}

// listed is a map of counts as text.
func listed(counts map[string]int64) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", key, counts[key]))
	}

	return strings.Join(parts, ", ")
}

// settle waits until nothing has been written for some seconds, and returns what was counted when the last write was seen.
func (m *measurement) settle(ctx context.Context) (counters, error) {
	last, err := m.count(ctx)
	if err != nil {
		return last, err
	}

	for still := 0; still < 5; still++ {
		if err := sleep(ctx, 3*time.Second); err != nil {
			return last, err
		}

		now, err := m.count(ctx)
		if err != nil {
			return last, err
		}

		if !maps.Equal(now.writes, last.writes) {
			last = now
			still = -1
		}
	}

	return last, nil
}

// secondRun runs the rule a second time, in which the numbers are those of the first or next to it.
func (m *measurement) secondRun(ctx context.Context) error {
	before, err := m.count(ctx)
	if err != nil {
		return err
	}

	// A change of the spec starts a run at once.
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runInterval":"23h"}}`))
	rule := &analysisv1alpha1.RecommendationRule{ObjectMeta: metav1.ObjectMeta{Name: ruleName}}
	if err := m.cluster.client.Patch(ctx, rule, patch); err != nil {
		return err
	}

	after, err := m.complete(ctx, "second run", 2, before)
	if err != nil {
		return err
	}

	m.table.add("a second run, in which hardly anything has changed", wallOf(before, after), "")
	m.spent("  ", after.since(before))

	if after, err = m.settle(ctx); err != nil {
		return err
	}

	d := after.since(before)
	m.table.add("  writes", fmt.Sprintf("%d: %s", d.total(), listed(d.writes)), "")
	m.table.add("  peak memory of craned since its start", fmt.Sprintf("%d MiB", after.peak>>20), "1024 MiB")

	return nil
}

// complete waits for the end of a run and reports progress.
func (m *measurement) complete(ctx context.Context, what string, run int32, before counters) (counters, error) {
	ctx, cancel := context.WithTimeout(ctx, m.bound)
	defer cancel()

	rule := &analysisv1alpha1.RecommendationRule{}
	reported := time.Now()
	for {
		if err := m.cluster.client.Get(ctx, client.ObjectKey{Name: ruleName}, rule); err != nil {
			return counters{}, err
		}

		if rule.Status.RunNumber >= run {
			return m.count(ctx)
		}

		if err := m.craned.alive(); err != nil {
			return counters{}, err
		}

		// A run takes minutes, so that it reports what has been written since its start.
		if time.Since(reported) >= progressInterval {
			now, err := m.count(ctx)
			if err != nil {
				return now, err
			}

			d := now.since(before).writes
			logf("%s: %d statuses of %d workloads, %s", what, d["PATCH recommendations/status"]+d["PUT recommendations/status"], m.workloads, now.spent(before))
			reported = time.Now()
		}

		if err := sleep(ctx, time.Second); err != nil {
			return counters{}, fmt.Errorf("run %d did not end: %w; %+v", run, err, rule.Status)
		}
	}
}

// measureIdle looks while nothing changes.
func (m *measurement) measureIdle(ctx context.Context) error {
	if m.quiet <= 0 {
		return nil
	}

	logf("looking for %v while nothing changes", m.quiet)
	// What it reads to measure is small beside what it measures, so it looks at the begin and at the end alone.
	before, err := measure.Writes(ctx, m.cluster.rest)
	if err != nil {
		return err
	}

	cpu, err := measure.CPU(m.craned.cmd.Process.Pid)
	if err != nil {
		return err
	}

	began := time.Now()
	if err := sleep(ctx, m.quiet); err != nil {
		return err
	}

	used, err := measure.CPU(m.craned.cmd.Process.Pid)
	if err != nil {
		return err
	}

	wall := time.Since(began)
	after, err := measure.Writes(ctx, m.cluster.rest)
	if err != nil {
		return err
	}

	d := counters{writes: after}.since(counters{writes: before})
	m.table.add(fmt.Sprintf("%v in which nothing changes", m.quiet), "", "")
	m.table.add("  writes but leases", strings.TrimSpace(fmt.Sprintf("%d %s", d.total(), listed(d.writes))), "0")
	m.table.add("  craned", fmt.Sprintf("%.4f of a core", (used-cpu).Seconds()/wall.Seconds()), "0.02")

	return nil
}
