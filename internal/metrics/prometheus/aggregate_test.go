// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/metrics"
)

func TestWorkloadUsageSumsPodsByTheirOwners(t *testing.T) {
	from := today.Add(-2 * time.Hour)
	to := today

	w := newFixture(from, to)
	for pod, cores := range map[string]float64{"web-6d4cf56db6-aaaaa": 0.2, "web-6d4cf56db6-bbbbb": 0.3, "web-7f8c9b5d4c-ccccc": 0.1} {
		w.cpu("shop", pod, "app", constant(cores))
		w.cpu("shop", pod, "sidecar", constant(0.05))
		rs := pod[:strings.LastIndexByte(pod, '-')]
		w.owned(podOwnerMetric, "shop", "pod", pod, "ReplicaSet", rs, constant(1))
	}

	w.owned(replicaSetOwnerMetric, "shop", "replicaset", "web-6d4cf56db6", "Deployment", "web", constant(1))
	w.owned(replicaSetOwnerMetric, "shop", "replicaset", "web-7f8c9b5d4c", "Deployment", "web", constant(1))

	// A pod of a DaemonSet with a name like those of web, and pods without an exported owner.
	w.cpu("shop", "web-front-zzzzz", "app", constant(7))
	w.owned(podOwnerMetric, "shop", "pod", "web-front-zzzzz", "DaemonSet", "web-front", constant(1))
	w.cpu("shop", "api-5b8c7d9f4-ddddd", "app", constant(0.4))
	w.cpu("bank", "web-6d4cf56db6-eeeee", "app", constant(9))
	w.cpu("shop", "odd-pod-1", "app", constant(0.7))

	w.owned(podOwnerMetric, "shop", "pod", "odd-pod-1", "ReplicaSet", "odd-rs", constant(1))
	w.owned(replicaSetOwnerMetric, "shop", "replicaset", "odd-rs", "Rollout", "canary", constant(1))
	w.cpu("shop", "nightly-29000000-fffff", "app", constant(0.6))
	w.owned(podOwnerMetric, "shop", "pod", "nightly-29000000-fffff", "Job", "nightly-29000000", constant(1))
	w.owned(jobOwnerMetric, "shop", "job_name", "nightly-29000000", "CronJob", "nightly", constant(1))
	w.cpu("shop", "cart-3-ggggg", "app", constant(0.8))
	w.owned(podOwnerMetric, "shop", "pod", "cart-3-ggggg", "ReplicationController", "cart-3", constant(1))
	w.owned(replicationControllerOwnerMetric, "shop", "replicationcontroller", "cart-3", "DeploymentConfig", "cart", constant(1))
	s := w.source(t, nil)

	for _, c := range []struct {
		kind  string
		names []string
		want  map[string]float64
	}{
		{"DeploymentConfig", []string{"cart"}, map[string]float64{"cart": 0.8}},
		{"ReplicationController", []string{"cart-3"}, map[string]float64{"cart-3": 0.8}},
		{"Deployment", []string{"web", "api", "none"}, map[string]float64{"web": 0.75, "api": 0.4}},
		{"DaemonSet", []string{"web-front"}, map[string]float64{"web-front": 7}},
		{"Rollout", []string{"canary"}, map[string]float64{"canary": 0.7}},
		{"CronJob", []string{"nightly"}, map[string]float64{"nightly": 0.6}},
		{"Job", []string{"nightly-29000000"}, map[string]float64{"nightly-29000000": 0.6}},
		{"Pod", []string{"odd-pod-1"}, map[string]float64{"odd-pod-1": 0.7}},
		{"ReplicaSet", []string{"web-6d4cf56db6"}, map[string]float64{"web-6d4cf56db6": 0.6}},
	} {
		window := metrics.Window{Start: to.Add(-time.Hour), End: to.Add(-10 * time.Minute), Step: time.Minute}
		got, err := s.Capabilities().Aggregates.WorkloadUsage(t.Context(), metrics.WorkloadsRequest{
			Resource: metrics.CPU, Namespace: "shop", Kind: c.kind, Names: c.names, Window: window,
		})
		if err != nil {
			t.Fatalf("WorkloadUsage of %s: error %v, want none", c.kind, err)
		}

		if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, slices.Sorted(maps.Keys(c.want))) {
			t.Errorf("WorkloadUsage of %s returned %v, want %v", c.kind, keys, c.want)
		}

		for name, want := range c.want {
			one := got[name]
			if !one.Start.Equal(window.Start) || len(one.Values) != 50 {
				t.Errorf("WorkloadUsage of %s %s: %d values from %s, want 50 from %s", c.kind, name, len(one.Values), one.Start, window.Start)
			}

			for i, v := range one.Values {
				if math.Abs(v-want) > 1e-9 {
					t.Fatalf("%s %s: value %d is %v, want %v", c.kind, name, i, v, want)
				}
			}
		}
	}
}

// dip returns a counter of a rate that goes back by a tenth of a second once, as two CPUs with different clocks show it.
func dip(from, at time.Time, rate float64) func(time.Time) float64 {
	return func(t time.Time) float64 {
		// The counter has run for a month.
		total := 30*86400*rate + rate*t.Sub(from).Seconds()
		if t.Equal(at) {
			total -= rate*60 + 0.1
		}

		return total
	}
}

// TestAggregates_CounterDip checks that a counter that goes back leaves a gap in the usage of workloads, pods and nodes: neither thousands of cores,
// nor the sum of the other containers, nor an idle node.
func TestAggregates_CounterDip(t *testing.T) {
	from := today.Add(-4 * time.Hour)
	at := today.Add(-90 * time.Minute)
	for name, nodes := range map[string]bool{"known nodes": true, "unknown nodes": false} {
		w := newFixture(from, today)
		w.add(dip(from, at, 2), "__name__", cpuMetric, "namespace", "shop", "pod", "db-0", "container", "app", "cpu", "total")
		w.add(dip(from, time.Time{}, 1), "__name__", cpuMetric, "namespace", "shop", "pod", "db-1", "container", "app", "cpu", "total")
		for _, pod := range []string{"db-0", "db-1"} {
			w.owned(podOwnerMetric, "shop", "pod", pod, "StatefulSet", "db", constant(1))
		}

		for cpu, idle := range map[string]func(time.Time) float64{"0": dip(from, at, 0.5), "1": dip(from, time.Time{}, 0.5)} {
			w.add(idle, "__name__", nodeCPUMetric, "mode", "idle", "cpu", cpu, "instance", "node-a:9100")
		}
		if nodes {
			w.add(constant(64), "__name__", capacityMetric, "node", "node-a", "resource", "cpu")
		}

		s := w.source(t, nil)
		window := metrics.Window{Start: today.Add(-3 * time.Hour), End: today, Step: time.Minute}
		workloads, err := s.Capabilities().Aggregates.WorkloadUsage(t.Context(), metrics.WorkloadsRequest{
			Resource: metrics.CPU, Namespace: "shop", Kind: "StatefulSet", Names: []string{"db"}, Window: window,
		})
		if err != nil {
			t.Fatal(err)
		}

		usage, err := s.Capabilities().Aggregates.NodeUsage(t.Context(), metrics.NodesRequest{Resource: metrics.CPU, Names: []string{"node-a"}, Window: window})
		if err != nil {
			t.Fatal(err)
		}

		hourly, err := s.Capabilities().Hourly.Hourly(t.Context(), metrics.HourlyRequest{Metric: metrics.PodCPU, Hours: 3, End: today, Namespaces: []string{"shop"}})
		if err != nil {
			t.Fatal(err)
		}

		checkGap(t, name+": WorkloadUsage", workloads["db"].Values, 3)
		checkGap(t, name+": NodeUsage", usage["node-a"].Values, 1)
		for _, h := range hourly {
			if h.Key.Pod == "db-0" && nodes {
				checkGap(t, name+": Hourly", h.Values, 2)
			}
		}
	}
}

// checkGap checks that values are a constant, with a gap of at most a tenth of them or a single one. A rate from the lower sample on is a little
// more.
func checkGap(t *testing.T, call string, values []float64, want float64) {
	t.Helper()

	gaps := 0
	for i, v := range values {
		switch {
		case math.IsNaN(v):
			gaps++
		case math.Abs(v-want) > 0.3*want:
			t.Errorf("%s: value %d is %v, want %v or a gap", call, i, v, want)
		}
	}

	if gaps == 0 || gaps > max(1, len(values)/10) {
		t.Errorf("%s has %d gaps in %d values, want those of the counter that goes back", call, gaps, len(values))
	}
}

// TestNodeUsageFindsNodesInEachWay checks nodes that are identified by the name in the instance, by a label and by
// their address.
func TestNodeUsageFindsNodesInEachWay(t *testing.T) {
	from := today.Add(-2 * time.Hour)
	to := today
	w := newFixture(from, to)
	w.cpu("shop", "any-pod-1", "app", constant(0.1))

	exporter := func(labels ...string) {
		for _, cpu := range []string{"0", "1"} {
			idle := 0.0
			w.add(func(at time.Time) float64 {
				if at.Equal(from) {
					idle = 0
				}

				idle += 0.75 * 60
				return idle
			}, append([]string{"__name__", nodeCPUMetric, "mode", "idle", "cpu", cpu}, labels...)...)
		}

		w.add(constant(8<<30), append([]string{"__name__", nodeTotalMetric}, labels...)...)
		w.add(constant(5<<30), append([]string{"__name__", nodeAvailableMetric}, labels...)...)
	}

	exporter("instance", "node-a:9100")
	exporter("instance", "10.1.1.1:9100", "node", "node-b")
	exporter("instance", "10.0.0.3:9100")
	exporter("instance", "node-d")
	exporter("instance", "10.0.0.9:9100")
	w.add(constant(1), "__name__", nodeInfoMetric, "node", "node-c", "internal_ip", "10.0.0.3", "instance", "ksm:8080")

	// An address that moves is at two nodes for a while: neither has usage, and the other nodes are still read.
	for _, shared := range []string{"node-e", "node-f"} {
		w.add(constant(1), "__name__", nodeInfoMetric, "node", shared, "internal_ip", "10.0.0.9", "instance", "ksm:8080")
	}

	s := w.source(t, nil)
	window := metrics.Window{Start: to.Add(-time.Hour), End: to.Add(-30 * time.Minute), Step: time.Minute}
	for resource, want := range map[metrics.UsageKind]float64{metrics.CPU: 0.5, metrics.Memory: 3 << 30} {
		names := []string{"node-a", "node-b", "node-c", "node-d", "node-e", "node-f", "node-x"}
		got, err := s.Capabilities().Aggregates.NodeUsage(t.Context(), metrics.NodesRequest{Resource: resource, Names: names, Window: window})
		if err != nil {
			t.Fatal(err)
		}

		for _, name := range names[:4] {
			one := got[name]
			if len(one.Values) != 30 || math.Abs(one.Values[7]-want) > 1e-9*want {
				t.Errorf("%s of %s: %v, want %v", resource, name, one.Values, want)
			}
		}

		for _, name := range names[4:] {
			if _, there := got[name]; there {
				t.Errorf("NodeUsage returned %s of %s, want none", resource, name)
			}
		}
	}
}

func TestSelectorKeepsHostileValues(t *testing.T) {
	s := newSource(t, "http://localhost:1", func(c *Config) { c.Matchers = []Matcher{{Label: "cluster", Op: "=", Value: "eu"}} })
	for metric, want := range map[string]string{
		"http_requests":  `http_requests{path="a\"} or vector(1) #",cluster="eu"}`,
		"my.metric{} or": `{__name__="my.metric{} or",path="a\"} or vector(1) #",cluster="eu"}`,
	} {
		got, err := s.Selector(metric, Matcher{Label: "path", Op: "=", Value: `a"} or vector(1) #`})
		if err != nil || got != want {
			t.Errorf("Selector(%q) = %s, %v, want %s", metric, got, err, want)
		}
	}

	for _, m := range []Matcher{{Label: "a-b", Op: "=", Value: ""}, {Label: "a", Op: "~", Value: ""}, {Label: "a", Op: "=~", Value: "("}} {
		if _, err := s.Selector("up", m); err == nil {
			t.Errorf("Selector with %v: no error, want one", m)
		}
	}

	if _, err := s.Selector(""); err == nil {
		t.Error("Selector without a metric: no error, want one")
	}
}
