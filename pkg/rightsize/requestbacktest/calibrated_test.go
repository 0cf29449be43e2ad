// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbacktest

import (
	"testing"
	"time"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// TestAdoptionReacts checks that the request of adoption is that of the recommendation until usage exceeds it, and that most of the time
// above it then ends.
func TestAdoptionReacts(t *testing.T) {
	s := series.Series{Start: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), Step: 5 * time.Minute}
	for i := range 12 * 288 {
		v := 1.0
		if day, minute := i/288, i%288*5; day >= 8 && minute >= 600 && minute < 840 {
			v = 3 // Four hours that the past does not have, and later the target does not cover.
		}

		s.Values = append(s.Values, v)
	}

	policy, err := rightsize.PolicyByName(rightsize.CalibratedPolicy)
	if err != nil {
		t.Fatal(err)
	}

	policy.CPU.Target = 0.2
	report, err := Run([]Named{{"web", s}}, []Rule{OfPolicy(policy, units.CPU), OfAdoption("adopted", 0.2)}, units.CPU)
	if err != nil {
		t.Fatal(err)
	}

	recommended := report.Mean[0]
	adopted := report.Mean[1]
	if !(recommended.Violation > 0.05) || adopted.Violation > recommended.Violation/8 || adopted.Cost <= recommended.Cost {
		t.Errorf("adopted %+v, want an eighth of the violation of recommended at a higher cost: %+v", adopted, recommended)
	}

	s = s.Between(s.Start, s.Start.Add(8*24*time.Hour))
	quiet, err := Run([]Named{{"web", s}}, []Rule{OfPolicy(policy, units.CPU), OfAdoption("adopted", 0.2)}, units.CPU)
	if err != nil || quiet.Mean[0].Cost != quiet.Mean[1].Cost {
		t.Errorf("without usage above the request: means %+v, %v; want equal costs", quiet.Mean, err)
	}
}
