// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReleasedPrometheusAgrees: equal series yield equal results from the playground's Prometheus and from the
// operating system's.
func TestReleasedPrometheusAgrees(t *testing.T) {
	lookPath(t, "prometheus")
	s := start(t, "--nodes", "3", "--workloads", "16", "--days", "8")
	want := recommend(t, "--prometheus", s.prometheus)
	s.interrupt(t)

	data := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(data, os.DirFS(filepath.Join(s.state, "prometheus"))); err != nil {
		t.Fatal(err)
	}
	got := recommend(t, "--prometheus", servePrometheus(t, data))
	numbers, worst := 0, 0.0
	for key, w := range want {
		if g := got[key]; w.set && g.set {
			numbers++
			worst = max(worst, math.Abs(g.value/w.value-1))
		}
	}
	t.Logf("%d numbers, the worst differs by %.3f %%", numbers, worst*100)
	if numbers < 30 {
		t.Errorf("only %d numbers were compared", numbers)
	}
	compare(t, got, want, 0.02)
}

// TestHostileSeries covers series that only a database can contain: counters that reset, two copies of one exporter,
// names with quotes and braces.
func TestHostileSeries(t *testing.T) {
	dir := t.TempDir()
	promtool := lookPath(t, "promtool")
	lookPath(t, "prometheus")
	file := filepath.Join(dir, "samples")
	if err := os.WriteFile(file, []byte(hostileSeries(time.Now())), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	run(t, promtool, "tsdb", "create-blocks-from", "openmetrics", file, data)
	got := recommend(t, "--prometheus", servePrometheus(t, data), "--history", "2d")

	plain := got["shop/Deployment/plain/app/cpu"]
	if !plain.set || plain.value < 0.5 || plain.value > 0.75 {
		t.Fatalf("half a core leads to %+v; all: %v", plain, got)
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

func lookPath(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no %s in PATH; install the prometheus package to run this", name)
	}
	return path
}

// servePrometheus runs the operating system's prometheus on data until the test ends and returns its address.
func servePrometheus(t *testing.T, data string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {scrape_interval: 1m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(lookPath(t, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+data,
		"--storage.tsdb.retention.time=90d", "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // the exit status is not tested
		log.Close()
	})
	eventually(t, "prometheus ready", func() error {
		resp, err := http.Get("http://" + address + "/-/ready")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(resp.Status)
		}
		text, readErr := os.ReadFile(log.Name())
		return errors.Join(err, readErr, errors.New(string(text)))
	})
	return "http://" + address
}
