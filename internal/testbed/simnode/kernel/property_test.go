// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestQuotasHold: after random writes no v1 group exceeds the nearest ancestor with a limit, no burst exceeds its
// quota, and rejected writes change nothing.
func TestQuotasHold(t *testing.T) {
	groups := []string{"a", "a/b", "a/b/deep", "a/c"}
	for _, v1 := range []bool{false, true} {
		tree := newTree(t, v1)
		quota := "cpu.max"
		if v1 {
			quota = "cpu.cfs_quota_us"
		}

		rng := rand.New(rand.NewPCG(3, 4))
		accepted, refused := 0, 0
		for range 200 {
			group := groups[rng.IntN(len(groups))]
			file := quota
			value := strconv.Itoa(rng.IntN(10) * 10_000)
			switch rng.IntN(4) {
			case 0:
				file = tree.hierarchy().cpu().burstFile()
				value = strconv.Itoa(rng.IntN(10) * 10_000)
			case 1:
				value = map[bool]string{true: "-1", false: "max"}[v1]
			}

			path := filepath.Join(tree.Dir, group, file)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}

			err = tree.Write(path, value)
			switch {
			case err == nil:
				accepted++
			case errors.Is(err, syscall.EINVAL):
				refused++
				if after, _ := os.ReadFile(path); string(after) != string(before) {
					t.Fatalf("%s reads %q after a rejected write of %s, want %q as before", path, after, value, before)
				}

			default:
				t.Fatal(err)
			}

			for _, g := range groups {
				b, err := tree.hierarchy().cpu().bandwidth(filepath.Join(tree.Dir, g))
				if err != nil || b.quota != none && b.burst > b.quota {
					t.Fatalf("bandwidth(%s) = %+v, error %v; want a burst of at most the quota", g, b, err)
				}

				for above := filepath.Dir(g); v1 && above != "." && b.quota != none; above = filepath.Dir(above) {
					if p, _ := tree.hierarchy().cpu().bandwidth(filepath.Join(tree.Dir, above)); p.quota != none && b.quota > p.quota {
						t.Fatalf("quota of %s = %d, want at most %d as of %s above it", g, b.quota, p.quota, above)
					}
				}
			}
		}

		if accepted < 40 || refused < 10 {
			t.Errorf("random writes with v1 %t: %d accepted and %d rejected, want at least 40 and 10", v1, accepted, refused)
		}
	}
}

// TestTickConserves: for random demands and limits the cores used do not exceed the machine's, no group exceeds its
// demand or limit, and all cores are busy while an unlimited group waits.
func TestTickConserves(t *testing.T) {
	tree := newTree(t, false)
	rng := rand.New(rand.NewPCG(5, 6))
	for range 30 {
		loads := []Load{{Group: "a/b/deep", CPU: rng.Float64() * 6}, {Group: "a/c", CPU: rng.Float64() * 6}, {Group: "x/y", CPU: rng.Float64() * 6}}
		put(t, tree, "a/c/cpu.weight", strconv.Itoa(1+rng.IntN(10_000)))
		put(t, tree, "x/cpu.weight", strconv.Itoa(1+rng.IntN(10_000)))
		limit := 10_000 + rng.IntN(300_000)
		put(t, tree, "a/c/cpu.max", strconv.Itoa(limit))

		got, err := tree.Tick(time.Second, loads)
		if err != nil {
			t.Fatal(err)
		}

		sum := 0.0
		waits := false
		for i, g := range got {
			sum += g.CPU
			if g.CPU < -1e-9 || g.CPU > loads[i].CPU+1e-9 {
				t.Fatalf("Tick(%+v) = %+v, want between 0 and the demand for each", loads, got)
			}

			waits = waits || loads[i].Group != "a/c" && g.CPU < min(loads[i].CPU, 4)-1e-9
		}

		if sum > 4+1e-9 || waits && sum < 4-1e-9 || got[1].CPU > float64(limit)/100_000+1e-9 {
			t.Fatalf("Tick(%+v) = %+v, want all of 4 cores used while a load waits, and a/c within its limit of %d", loads, got, limit)
		}
	}
}
