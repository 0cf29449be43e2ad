// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/metrics"
)

// renamedPod returns the labels of a sample about a pod of shop that was scraped from an exporter in namespace bank.
func renamedPod(metric string, more ...string) []string {
	return append([]string{
		"__name__", metric, "namespace", "bank", "pod", "db-0", "container", "app",
		"exported_namespace", "shop", "exported_pod", "db-0", "exported_container", "app", "job", "other",
	}, more...)
}

func TestRenamedLabelsChangeNoOtherPod(t *testing.T) {
	w := newFixture(today.Add(-3*time.Hour), today)
	w.cpu("bank", "db-0", "app", constant(0.1))
	w.memory("bank", "db-0", "app", constant(100))
	w.owned(podOwnerMetric, "bank", "pod", "db-0", "StatefulSet", "db", constant(1))
	w.add(constant(1), "__name__", containerInfoMetric, "namespace", "bank", "pod", "db-0", "container", "app")
	w.add(constant(100), "__name__", requestsMetric, "namespace", "bank", "pod", "db-0", "container", "app", "resource", "memory")
	w.add(constant(4), "__name__", allocatableMetric, "node", "n1", "resource", "cpu")

	total := 0.0
	w.add(func(time.Time) float64 { total += 6000; return total }, renamedPod(cpuMetric, "cpu", "total")...)
	w.add(constant(9000), renamedPod(memoryMetric)...)
	w.add(constant(1), renamedPod(podOwnerMetric, "owner_kind", "StatefulSet", "owner_name", "wrong", "owner_is_controller", "true")...)
	w.add(constant(1), renamedPod(containerInfoMetric)...)
	w.add(constant(9000), renamedPod(requestsMetric, "resource", "memory")...)
	w.add(constant(640), "__name__", allocatableMetric, "node", "n1", "exported_node", "n9", "resource", "cpu")
	s := w.source(t, nil)

	for resource, want := range map[metrics.UsageKind]float64{metrics.CPU: 0.1, metrics.Memory: 100} {
		got := readAll(t, s, metrics.UsageRequest{Resource: resource, Start: w.grid.Start, End: w.grid.End, Step: time.Hour})
		if len(got) != 1 {
			t.Errorf("Usage(%s) = %v, want that of bank/db-0 alone", resource, got)
		}

		for key, usage := range got {
			if key.Workload.Namespace != "bank" || slices.Max(usage.Values) > 1.01*want {
				t.Errorf("Usage(%s) of %v = %v, want about %v in bank", resource, key, usage.Values, want)
			}
		}
	}

	found, err := s.Inventory(t.Context(), nil)
	if err != nil || len(found) != 1 || found[0].Name != "db" || found[0].Containers[0].Requests.Memory != 100 {
		t.Errorf("Inventory() = %+v, %v, want StatefulSet db that requests 100 bytes alone", found, err)
	}

	if limits, err := s.Constraints(t.Context()); err != nil || limits.MaxCPU != 4000 {
		t.Errorf("Constraints() = %+v, %v, want a largest node of 4 cores", limits, err)
	}
}

func TestProbeNamesEachMetricWithRenamedLabels(t *testing.T) {
	for _, metric := range []string{cpuMetric, memoryMetric, throttledMetric, podOwnerMetric, podInfoMetric, requestsMetric, restartsMetric} {
		for _, label := range identifyingLabels(metric) {
			w := newFixture(today.Add(-10*time.Minute), today)
			w.add(constant(1), "__name__", metric, "namespace", "monitoring", "pod", "exporter", "container", "c", "exported_"+label, "x")

			r, err := w.source(t, nil).ProbeWithoutHistory(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			i := slices.IndexFunc(r.Metrics, func(m metrics.MetricPresence) bool { return m.Metric == metric })
			if m := r.Metrics[i]; m.Series != 0 || m.Renamed != 1 || !strings.Contains(m.Impact, "exported_"+label) {
				t.Errorf("%s with exported_%s: presence %+v, want no series, one renamed and a reason", metric, label, m)
			}
			if all := strings.Join(r.Warnings, "\n"); !strings.Contains(all, "honorLabels: true") || !strings.Contains(all, metric) {
				t.Errorf("%s with exported_%s: warnings %q, want one about honorLabels that names the metric", metric, label, all)
			}
		}
	}
}
