// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"slices"
	"testing"
)

func TestParseCPUs(t *testing.T) {
	for list, want := range map[string][]int{
		"0": {0}, "0-2": {0, 1, 2}, "0,2": {0, 2}, "1-2,5": {1, 2, 5}, "3-3": {3},
	} {
		if got, err := ParseCPUs(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("ParseCPUs(%q) = %v, error %v; want %v", list, got, err, want)
		}
	}

	for _, list := range []string{"", "a", "1-", "-1", "2-1", "0,,1", "0-99999", "1 2"} {
		if got, err := ParseCPUs(list); err == nil {
			t.Errorf("ParseCPUs(%q) = %v, want an error", list, got)
		}
	}
}

func FuzzParseCPUs(f *testing.F) {
	f.Add("0-2,4")
	f.Fuzz(func(t *testing.T, list string) {
		cpus, err := ParseCPUs(list)
		if err == nil && len(cpus) == 0 {
			t.Errorf("ParseCPUs(%q): no CPU and no error, want one of them", list)
		}

		for _, cpu := range cpus {
			if cpu < 0 || cpu > maxCPU {
				t.Errorf("ParseCPUs(%q) has CPU %d, want 0 to %d", list, cpu, maxCPU)
			}
		}
	})
}
