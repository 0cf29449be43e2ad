// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"crane.io/crane/test/metricstore"
)

// TestReleasedPrometheus checks that recommendations from a released Prometheus with the same series equal those from the
// embedded server.
func TestReleasedPrometheus(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(data, os.DirFS(history)); err != nil {
		t.Fatal(err)
	}

	url := metricstore.Prometheus(t, data, "global: {scrape_interval: 1m}\n")
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))

	embedded, code, errOut := crane(t, "--prometheus", servePrometheus(t).URL())
	if code != 0 {
		t.Fatalf("embedded: exit %d, want 0: %s", code, errOut)
	}

	released, code, errOut := crane(t, "--prometheus", url)
	if code != 0 {
		t.Fatalf("released: exit %d, want 0: %s", code, errOut)
	}

	if len(embedded.Workloads) == 0 || len(embedded.Workloads) != len(released.Workloads) {
		t.Fatalf("%d workloads with the embedded server, want as many as with the released one, %d", len(embedded.Workloads), len(released.Workloads))
	}

	for i, a := range embedded.Workloads {
		b := released.Workloads[i]
		if a.Namespace+a.Kind+a.Name != b.Namespace+b.Kind+b.Name || a.State != b.State {
			t.Errorf("embedded %v, released %v, want the same workload in the same state", a, b)
			continue
		}

		for j := range a.Containers {
			x := a.Containers[j]
			y := b.Containers[j]
			for what, pair := range map[string][2]float64{
				"cpu":    {x.CPU.Recommended.Request.Value, y.CPU.Recommended.Request.Value},
				"memory": {x.Memory.Recommended.Request.Value, y.Memory.Recommended.Request.Value},
			} {
				if math.Abs(pair[0]-pair[1]) > 0.02*pair[0] {
					t.Errorf("%s of %s/%s: %g embedded, %g released, want a difference of 2 %% at most", what, a.Namespace, a.Name, pair[0], pair[1])
				}
			}
		}
	}
}
