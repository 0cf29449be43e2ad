// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crane.io/crane/test/metricstore"
)

// TestReleasedPrometheusAgrees: equal series yield equal results from the playground's Prometheus and from the
// operating system's.
func TestReleasedPrometheusAgrees(t *testing.T) {
	s := start(t, "--nodes", "3", "--workloads", "16", "--days", "8")
	want := recommend(t, "--prometheus", s.prometheus)
	s.interrupt(t)

	data := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(data, os.DirFS(filepath.Join(s.state, "prometheus"))); err != nil {
		t.Fatal(err)
	}

	got := recommend(t, "--prometheus", metricstore.Prometheus(t, data, "global: {scrape_interval: 1m}\n"))
	numbers, worst := 0, 0.0
	for key, w := range want {
		if g := got[key]; w.set && g.set {
			numbers++
			worst = max(worst, math.Abs(g.value/w.value-1))
		}
	}

	t.Logf("%d numbers, the worst differs by %.3f %%", numbers, worst*100)
	if numbers < 30 {
		t.Errorf("%d numbers were compared, want 30 or more", numbers)
	}

	compare(t, got, want, 0.02)
}

// TestHostileSeries covers series that only a database can contain: counters that reset, two copies of one exporter,
// names with quotes and braces.
func TestHostileSeries(t *testing.T) {
	dir := t.TempDir()
	promtool := metricstore.Program(t, "promtool")

	file := filepath.Join(dir, "samples")
	if err := os.WriteFile(file, []byte(hostileSeries(time.Now())), 0o600); err != nil {
		t.Fatal(err)
	}

	data := filepath.Join(dir, "data")
	run(t, promtool, "tsdb", "create-blocks-from", "openmetrics", file, data)
	got := recommend(t, "--prometheus", metricstore.Prometheus(t, data, "global: {scrape_interval: 1m}\n"), "--history", "2d")

	plain := got["shop/Deployment/plain/app/cpu"]
	if !plain.set || plain.value < 0.5 || plain.value > 0.75 {
		t.Fatalf("half a core leads to %+v, want 0.5 to 0.75; all: %v", plain, got)
	}

	for _, name := range []string{"shop/Deployment/resets", "shop/Deployment/twice", odd + "/Deployment/" + odd} {
		for resource, want := range map[string]amount{"cpu": plain, "memory": got["shop/Deployment/plain/app/memory"]} {
			if a := got[name+"/app/"+resource]; !near(a, want, 0.05) {
				t.Errorf("%s, %s: %+v, want %+v as for the plain one", name, resource, a, want)
			}
		}
	}
}

// odd is a valid label value with special characters.
const odd = `a"b{c}'d\e,f=~g.*|h`

// hostileSeries returns two days of OpenMetrics text: three workloads that use half a core and 300 MiB, and one with an
// odd name.
func hostileSeries(now time.Time) string {
	end := now.Truncate(time.Minute)
	begin := end.Add(-50 * time.Hour)
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace
	type workload struct {
		namespace, name string
		copies          int
		reset           time.Duration
	}

	workloads := []workload{
		{"shop", "plain", 1, 0}, {"shop", "resets", 1, 3*time.Hour + 7*time.Minute}, {"shop", "twice", 2, 0}, {odd, odd, 1, 0},
	}

	var b strings.Builder
	family := func(metric, kind string, extra func(w workload) string, value func(w workload, age time.Duration) float64) {
		fmt.Fprintf(&b, "# TYPE %s %s\n", strings.TrimSuffix(metric, "_total"), kind)
		for _, w := range workloads {
			for replica := range w.copies {
				for at := begin; !at.After(end); at = at.Add(time.Minute) {
					fmt.Fprintf(&b, "%s{namespace=\"%s\",replica=\"%d\",%s} %g %d\n", metric, quote(w.namespace), replica, extra(w),
						value(w, at.Sub(begin)), at.Unix())
				}
			}
		}
	}

	one := func(workload, time.Duration) float64 { return 1 }
	pod := func(w workload) string { return fmt.Sprintf(`pod="%s-5d98ff48bc-fd8vp"`, quote(w.name)) }
	container := func(w workload) string { return pod(w) + `,container="app"` }
	family("container_cpu_usage_seconds_total", "counter", container, func(w workload, age time.Duration) float64 {
		if w.reset > 0 {
			age %= w.reset
		}

		return 0.5 * age.Seconds()
	})

	family("container_memory_working_set_bytes", "gauge", container, func(workload, time.Duration) float64 { return 300 << 20 })
	family("kube_pod_container_info", "gauge", container, one)
	family("kube_pod_owner", "gauge", func(w workload) string {
		return pod(w) + fmt.Sprintf(`,owner_kind="ReplicaSet",owner_name="%s-5d98ff48bc"`, quote(w.name))
	}, one)
	family("kube_replicaset_owner", "gauge", func(w workload) string {
		return fmt.Sprintf(`replicaset="%s-5d98ff48bc",owner_kind="Deployment",owner_name="%s"`, quote(w.name), quote(w.name))
	}, one)
	b.WriteString("# EOF\n")

	return b.String()
}
