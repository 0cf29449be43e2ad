// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
)

const week = 7 * 24 * time.Hour

func flat(n int, v float64) observation.Hours { return slices.Repeat(observation.Hours{v}, n) }

// fixture returns a bound volume that was not mounted for a week.
func fixture(change ...func(*Input)) Input {
	in := Input{Phase: Bound, Capacity: 10 << 30, Since: 2 * week, Claim: "shop/data", Mounted: flat(168, 0)}
	for _, c := range change {
		c(&in)
	}

	return in
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		in     Input
		state  recommend.State
		reason string
		says   string
	}{
		"unmounted":             {fixture(), recommend.Ready, ReasonUnmounted, "No pod has mounted claim shop/data for 7d, and the template of no workload names it. Delete the claim first. Its data go with it"},
		"keeps data":            {fixture(func(in *Input) { in.KeepsData = true }), recommend.Ready, ReasonUnmounted, "Retain"},
		"mounted":               {fixture(func(in *Input) { in.MountingPods = []string{"db-0", "db-1"} }), recommend.Clear, "", "mounted by db-0 and 1 more"},
		"scaled down":           {fixture(func(in *Input) { in.MatchingWorkloads = []string{"StatefulSet db"} }), recommend.Clear, "", "those of StatefulSet db would"},
		"mounted yesterday":     {fixture(func(in *Input) { in.Mounted[150] = 1 }), recommend.Clear, "", "was mounted within 7d"},
		"not watched":           {fixture(func(in *Input) { in.Mounted = nil }), recommend.NoData, "", "No number of pods that mounted claim shop/data is known"},
		"watched since a day":   {fixture(func(in *Input) { in.Mounted = flat(24, 0) }), recommend.Learning, "", "24 of the last 168"},
		"watched until a day":   {fixture(func(in *Input) { in.Mounted = append(flat(144, 0), observation.Unknown(24)...) }), recommend.NoData, "", "24h old"},
		"young":                 {fixture(func(in *Input) { in.Since = time.Hour }), recommend.Learning, "", "It has been bound for 1h0m0s, and has to be for 7d"},
		"released":              {Input{Phase: Released, Claim: "shop/data", ClaimGone: true, Since: week, KeepsData: true}, recommend.Ready, ReasonUnclaimed, "claim shop/data, whose data it holds, is gone"},
		"released of late":      {Input{Phase: Released, Claim: "shop/data", ClaimGone: true, Since: week - time.Second}, recommend.Learning, "", "released"},
		"released, claim again": {Input{Phase: Released, Claim: "shop/data", Since: week}, recommend.Ready, ReasonUnclaimed, "is gone"},
		"claim lost":            {Input{Phase: Bound, Claim: "shop/data", ClaimGone: true, Since: week}, recommend.Ready, ReasonUnclaimed, "is gone"},
		"never claimed":         {Input{Phase: Available, Since: week}, recommend.Ready, ReasonUnclaimed, "no claim has requested it"},
		"failed":                {Input{Phase: Failed, Since: week}, recommend.Ready, ReasonUnclaimed, "it is failed"},
		"pending":               {Input{Phase: Pending, Since: week}, recommend.Clear, "", "being created"},
		"no phase":              {Input{}, recommend.Learning, "", "unknown phase"},
		"age in the future":     {fixture(func(in *Input) { in.Since = -time.Hour }), recommend.Learning, "", "-1h"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(c.in, Settings{Hours: 168})
			if plan.State != c.state || plan.Reason != c.reason || !strings.Contains(plan.Description, c.says) || (plan.Action == recommend.Delete) != (c.state == recommend.Ready) {
				t.Errorf("Decide = %+v, want %s, reason %q and a text with %q", plan, c.state, c.reason, c.says)
			}
		})
	}
}

func TestParseSettings(t *testing.T) {
	if s, err := ParseSettings(nil); err != nil || s.Hours != 168 {
		t.Errorf("ParseSettings(nil) = %+v, %v, want 168 hours", s, err)
	}
	if s, err := ParseSettings(map[string]string{"unused-for": "2d"}); err != nil || s.Hours != 48 {
		t.Errorf("ParseSettings(unused-for=2d) = %+v, %v, want 48 hours", s, err)
	}
	if _, err := ParseSettings(map[string]string{"unused-fro": "2d"}); err == nil || !strings.Contains(err.Error(), "unused-for") {
		t.Error(err)
	}
}

// FuzzDecide: a bound volume is unused only if it is known that no pod mounted it.
func FuzzDecide(f *testing.F) {
	f.Add("Bound", "a/b", false, int64(week), 168, 0.0, 0)
	f.Add("", "", true, int64(-1), 3, math.NaN(), 1)
	f.Fuzz(func(t *testing.T, phase, claim string, gone bool, since int64, hours int, mounted float64, mounts int) {
		if hours < 0 || hours > 1000 || mounts < 0 || mounts > 5 {
			return
		}

		in := Input{Phase: Phase(phase), Claim: claim, ClaimGone: gone, Since: time.Duration(since), Mounted: flat(hours, mounted), MountingPods: make([]string, mounts)}
		plan := Decide(in, Settings{Hours: 168})
		if plan.Description == "" {
			t.Errorf("Decide = %+v, want a description", plan)
		}

		if plan.Action != recommend.Delete {
			return
		}

		if in.Since < week || in.Phase == Bound && claim != "" && !gone && (mounted != 0 || hours < 152 || mounts > 0) {
			t.Errorf("Decide(%+v) = %+v, want Delete only with enough data and no mount", in, plan)
		}
	})
}
