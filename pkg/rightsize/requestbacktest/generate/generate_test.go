// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"slices"
	"testing"

	"crane.io/crane/pkg/rightsize/requestbacktest"
	"crane.io/crane/pkg/units"
)

func TestMemoryIsDeterministicAndPositive(t *testing.T) {
	a := Memory(1, 20, 3)
	b := Memory(1, 20, 3)
	other := Memory(2, 20, 3)
	for i := range a {
		if a[i].Name != b[i].Name || !slices.Equal(a[i].Series.Values, b[i].Series.Values) {
			t.Errorf("%s: Memory(1) twice differs, want the same values of one seed", a[i].Name)
		}
		if slices.Equal(a[i].Series.Values, other[i].Series.Values) {
			t.Errorf("%s: Memory(1) and Memory(2) have equal values, want others of another seed", a[i].Name)
		}
		if sum := a[i].Series.Summarize(); sum.Min <= 0 || sum.Gaps > 0 || sum.Count != 3*perDay {
			t.Errorf("%s: summary %+v, want %d positive samples without gaps", a[i].Name, sum, 3*perDay)
		}
	}
}

func TestMemoryPolicyAgainstPeers(t *testing.T) {
	rules, err := requestbacktest.Rules(units.Memory, "crane-default", "crane-latency-sensitive", "vpa", "krr-p95")
	if err != nil {
		t.Fatal(err)
	}

	// Several seeds together: which day a shift of level falls on is luck that no policy foresees.
	var all []requestbacktest.Named
	for seed := range uint64(4) {
		all = append(all, Memory(seed, 20, 21)...)
	}

	report, err := requestbacktest.Run(all, rules, units.Memory)
	if err != nil {
		t.Fatal(err)
	}

	mean := map[string]requestbacktest.Score{}
	for _, s := range report.Mean {
		mean[s.Policy] = s
		t.Logf("%-26s slack %.3f, oomDays %.3f, violation %.3f %%, changes %.2f", s.Policy, s.Slack, *s.OOMDays, 100*s.Violation, s.Changes)
	}

	ours := mean["crane-default"]
	krr := mean["krr-p95"]
	if *ours.OOMDays > *krr.OOMDays || ours.Slack >= krr.Slack {
		t.Errorf("crane-default has %.3f days out of memory at slack %.3f; want at most krr-p95's %.3f at less than %.3f",
			*ours.OOMDays, ours.Slack, *krr.OOMDays, krr.Slack)
	}
}
