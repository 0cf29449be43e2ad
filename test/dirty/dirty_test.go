// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dirty

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// rounds returns the seed of the first round, CRANE_DIRTY_SEED, and the time for further ones, CRANE_DIRTY.
func rounds(t *testing.T) (seed uint64, length time.Duration) {
	t.Helper()

	seed = firstSeed
	var err error
	if text := os.Getenv("CRANE_DIRTY_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("CRANE_DIRTY_SEED: %v", err)
		}
	}

	if text := os.Getenv("CRANE_DIRTY"); text != "" {
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("CRANE_DIRTY: %v", err)
		}
	}

	return seed, length
}

// TestDirtySeries compares the recommendations from damaged series with those from clean ones, and prints the share of right answers by
// kind of fault. A kind may not fall below its documented minimum.
func TestDirtySeries(t *testing.T) {
	// The workloads come from the metrics, whatever cluster is at hand.
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	seed, length := rounds(t)
	began := time.Now()
	var all []Case
	for round := seed; round == seed || time.Since(began) < length; round++ {
		all = append(all, runRound(t, round)...)
	}

	t.Log(table(all))

	minimums := map[string]float64{}
	for _, k := range kinds() {
		minimums[k.Name] = k.Minimum
	}
	for _, k := range serverKinds() {
		minimums[k.Name] = k.Minimum
	}

	for kind, share := range shares(all) {
		if share < minimums[kind] {
			t.Errorf("%s: %.0f %% of the answers are right, want at least %.0f %%", kind, 100*share, 100*minimums[kind])
		}
	}
}

// TestSmallest checks that the fewest faults that fail together are found.
func TestSmallest(t *testing.T) {
	all := usageKinds()[:6]
	for _, want := range [][]int{{0}, {5}, {1, 4}, {0, 2, 5}, {0, 1, 2, 3, 4, 5}} {
		got, err := smallest(all, func(parts []Kind) (bool, error) {
			for _, i := range want {
				if !slices.ContainsFunc(parts, func(k Kind) bool { return k.Name == all[i].Name }) {
					return false, nil
				}
			}

			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}

		if len(got) != len(want) || got[0].Name != all[want[0]].Name {
			t.Errorf("smallest of faults that fail with %v: %d faults, want %d from %s on", want, len(got), len(want), all[want[0]].Name)
		}
	}
}

// runRound runs a case of each kind, or of the kinds that CRANE_DIRTY_KIND names, separated by semicolons.
func runRound(t *testing.T, round uint64) []Case {
	t.Helper()

	var only []string
	if text := os.Getenv("CRANE_DIRTY_KIND"); text != "" {
		only = strings.Split(text, ";")
	}

	isSelected := func(name string) bool { return len(only) == 0 || slices.Contains(only, name) }
	selected := slices.DeleteFunc(kinds(), func(k Kind) bool { return !isSelected(k.Name) })
	dir := t.TempDir()

	var out []Case
	if len(selected) > 0 {
		answers, err := runWorkloads(t.Context(), dir, selected, round)
		if err != nil {
			t.Fatal(err)
		}

		out = answers
	}

	for i, k := range selected {
		if out[i].Wrong == "" || len(k.parts) == 0 {
			continue
		}

		faults, err := fewestFaults(t.Context(), dir, k, round)
		if err != nil {
			t.Fatal(err)
		}

		out[i].Faults = faults
	}

	for _, k := range serverKinds() {
		if !isSelected(k.Name) {
			continue
		}

		found, err := runServer(t.Context(), dir, k, round)
		if err != nil {
			t.Fatal(err)
		}

		out = append(out, found...)
	}

	// The stores of many rounds would fill the disk.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}

	return out
}

// shares returns the share of right answers by kind.
func shares(cases []Case) map[string]float64 {
	right := map[string]float64{}
	count := map[string]float64{}
	for _, c := range cases {
		count[c.Kind]++
		if c.Wrong == "" {
			right[c.Kind]++
		}
	}

	out := map[string]float64{}
	for kind := range count {
		out[kind] = right[kind] / count[kind]
	}

	return out
}

// table returns the share of right answers by kind and the first wrong case of each.
func table(cases []Case) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	right := 0
	count := map[string]int{}
	first := map[string]Case{}
	for _, c := range cases {
		count[c.Kind]++
		if c.Wrong == "" {
			right++
		} else if _, ok := first[c.Kind]; !ok {
			first[c.Kind] = c
		}
	}

	byKind := shares(cases)
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		fmt.Fprintf(w, "%s\t%d\t%.0f %%\n", kind, count[kind], 100*byKind[kind])
	}
	w.Flush()

	for _, kind := range slices.Sorted(maps.Keys(first)) {
		fmt.Fprintf(&b, "wrong: %s\n", first[kind])
	}

	return fmt.Sprintf("%d cases, %.1f %% right\n%s", len(cases), 100*float64(right)/float64(len(cases)), b.String())
}
