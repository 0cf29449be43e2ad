// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"crane.io/crane/test/integration/harness"
)

// TestReleasedPrometheus checks that recommendations from a released Prometheus with the same series equal those from the
// embedded server.
func TestReleasedPrometheus(t *testing.T) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("no prometheus on this machine (Debian: apt-get install prometheus):", err)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	embedded, code, errOut := crane(t, "--prometheus", servePrometheus(t).URL())
	if code != 0 {
		t.Fatalf("embedded: exit %d: %s", code, errOut)
	}
	released, code, errOut := crane(t, "--prometheus", runPrometheus(t, program))
	if code != 0 {
		t.Fatalf("released: exit %d: %s", code, errOut)
	}
	if len(embedded.Workloads) == 0 || len(embedded.Workloads) != len(released.Workloads) {
		t.Fatalf("%d workloads with the embedded server, %d with the released one", len(embedded.Workloads), len(released.Workloads))
	}
	for i, a := range embedded.Workloads {
		b := released.Workloads[i]
		if a.Namespace+a.Kind+a.Name != b.Namespace+b.Kind+b.Name || a.State != b.State {
			t.Errorf("embedded %v, released %v", a, b)
			continue
		}
		for j := range a.Containers {
			x, y := a.Containers[j], b.Containers[j]
			for what, pair := range map[string][2]float64{
				"cpu":    {x.CPU.Recommended.Request.Value, y.CPU.Recommended.Request.Value},
				"memory": {x.Memory.Recommended.Request.Value, y.Memory.Recommended.Request.Value},
			} {
				if math.Abs(pair[0]-pair[1]) > 0.02*pair[0] {
					t.Errorf("%s of %s/%s: %g embedded, %g released", what, a.Namespace, a.Name, pair[0], pair[1])
				}
			}
		}
	}
}

// runPrometheus serves the shared history with a released Prometheus and returns its URL.
func runPrometheus(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := os.CopyFS(data, os.DirFS(history)); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {scrape_interval: 1m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := harness.FreeAddress(t)
	harness.Start(t, waitTimeout, program, "--config.file="+config, "--storage.tsdb.path="+data, "--storage.tsdb.retention.time=30d",
		"--web.listen-address="+address, "--log.level=warn")
	eventually(t, "prometheus ready", func(ctx context.Context) error {
		_, err := harness.Get(ctx, "http://"+address+"/-/ready")
		return err
	})
	return "http://" + address
}
