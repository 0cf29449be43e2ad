// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"crane.io/crane/internal/scheduler/simulate/engine"
	"crane.io/crane/internal/scheduler/simulate/peer"
)

// updateGolden is the environment variable with which TestGolden rewrites its file.
const updateGolden = "CRANE_UPDATE_GOLDEN"

// TestGolden compares the placements of forty minutes on twenty nodes, with and without faults, with a stored file,
// pod by pod. An intended change of a decision rewrites the file, and the difference shows its effect.
func TestGolden(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skipf("%s may fuse multiplications with additions, and places a pod elsewhere where two nodes are all but alike", runtime.GOARCH)
	}

	const file = "testdata/golden.txt"
	strategy := func(name string) func(peer.Env) peer.Policy {
		return ours(t, func(o *engine.Ours) { o.Strategy = name })
	}

	var found strings.Builder
	for _, scenario := range []string{"steady", "faults", "departures", "exporters"} {
		for _, p := range []struct {
			name  string
			build func(peer.Env) peer.Policy
		}{
			{"default", peer.Default},
			{"gocrane", peer.Gocrane},
			{"koordinator", peer.Koordinator},
			{"spread", strategy("Spread")},
			{"pack", strategy("Pack")},
			{"risk", strategy("Risk")},
			{"no-history", ours(t, func(o *engine.Ours) { o.History = false })},
			{"rebalanced", ours(t, func(o *engine.Ours) {
				o.PolicyPath, o.Policy = policyOf(t, "internal/scheduler/simulate/rebalancing.yaml")
				o.Rebalance = true
			})},
			{"oracle", peer.Oracle},
		} {
			r := run(t, smallScenario(t, scenario), 1, p.build)
			fmt.Fprintf(&found, "%-10s  %-11s  sigma %.4f  hot %3.0f  placed %d  waited %.0f  moves %d  patches %d  placements %s\n",
				scenario, p.name, r.Sigma, r.Hot, r.Placed, r.Waited, r.Moves, r.Patches, r.Placements)
		}
	}

	if os.Getenv(updateGolden) != "" {
		if err := os.WriteFile(file, []byte(found.String()), 0o600); err != nil {
			t.Fatalf("writing %s: %v", file, err)
		}
	}

	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}

	before := strings.Split(string(want), "\n")
	now := strings.Split(found.String(), "\n")
	for i := range max(len(before), len(now)) {
		if i >= len(before) || i >= len(now) || before[i] != now[i] {
			t.Fatalf("line %d of %s differs, want it unchanged (if the change is intended, rewrite the file with %s=1); now:\n%s", i+1, file, updateGolden, found.String())
		}
	}
}

// TestGocranePolicyDoesNotTrap checks that, with gocrane's limits on maxima, pods do not wait without end for nodes
// on which other pods came and went.
func TestGocranePolicyDoesNotTrap(t *testing.T) {
	s := smallScenario(t, "steady")
	s.Workloads.Lifetime.Mean.Duration /= 6 // more pods come between two readings than ever run at once

	got := run(t, s, 1, ours(t, func(o *engine.Ours) { gocranePolicy(t, o) }))
	if got.Placed < 500 || got.Waited > float64(got.Placed)/10 {
		t.Errorf("%d pods were placed and waited for %.0f minutes together, want 500 or more pods, a tenth of a minute each", got.Placed, got.Waited)
	}
}
