// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"math"
	"slices"
	"strings"
	"testing"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/units"
)

func flat(n int, v float64) observation.Hours { return slices.Repeat(observation.Hours{v}, n) }

func standard(t *testing.T) Settings {
	t.Helper()

	s, err := ParseSettings(nil)
	if err != nil {
		t.Fatal(err)
	}

	return s
}

func TestDecide(t *testing.T) {
	one := func(limit units.MilliCPU, throttled observation.Hours) Input {
		return Input{Containers: []Container{{Name: "app", Limit: limit, Throttled: throttled}}, MaxCPU: 8000}
	}

	mixed := Input{Containers: []Container{
		{Name: "app", Limit: 500, Throttled: flat(168, 0.6)}, {Name: "proxy", Limit: 100, Throttled: nil}, {Name: "free"}, {Name: "calm", Limit: 100, Throttled: flat(168, 0.01)},
	}}
	for name, c := range map[string]struct {
		in         Input
		state      recommend.State
		action     recommend.Action
		to         units.MilliCPU
		incomplete bool
		says       string
	}{
		"throttled":              {one(500, flat(168, 0.5)), recommend.Ready, recommend.Patch, 750, false, "The limit of 500m throttles app in 50 % of the periods: 750m is the next step"},
		"a little more than due": {one(500, flat(168, 0.26)), recommend.Ready, recommend.Patch, 630, false, "26 %"},
		"all the time":           {one(1000, flat(168, 1)), recommend.Ready, recommend.Patch, 2000, false, "100 % of the periods: 2 is"},
		"at the threshold":       {one(500, flat(168, 0.25)), recommend.Clear, "", 0, false, "No limit throttles"},
		"seldom":                 {one(500, slices.Concat(flat(162, 0), flat(6, 0.9))), recommend.Clear, "", 0, false, "No limit throttles"},
		"one hour in ten":        {one(500, slices.Concat(flat(150, 0), flat(18, 0.9))), recommend.Ready, recommend.Patch, 950, false, "90 %"},
		"no limit":               {one(0, nil), recommend.Clear, "", 0, false, "No container has a CPU limit"},
		"no counters":            {one(500, nil), recommend.NoData, "", 0, false, "No throttling of app is known"},
		"half a day":             {one(500, flat(12, 0.9)), recommend.Learning, "", 0, false, "12 of the last 168 hours, and has to be for 24"},
		"a day":                  {one(500, flat(24, 0.9)), recommend.Ready, recommend.Patch, 950, false, "90 %"},
		"stale":                  {one(500, append(flat(100, 0.9), observation.Unknown(10)...)), recommend.NoData, "", 0, false, "10h old"},
		"nan":                    {one(500, flat(168, math.NaN())), recommend.NoData, "", 0, false, "No throttling"},
		"node has no more":       {one(8000, flat(168, 0.9)), recommend.Ready, recommend.NoAction, 0, false, "no node has more"},
		"up to the node":         {one(7000, flat(168, 0.9)), recommend.Ready, recommend.Patch, 8000, false, "8 is the next step"},
		"above the node":         {one(9000, flat(168, 0.9)), recommend.Ready, recommend.NoAction, 0, false, "no node has more"},
		"one of several":         {mixed, recommend.Ready, recommend.Patch, 800, true, "No throttling of proxy is known"},
		"nothing":                {Input{}, recommend.Clear, "", 0, false, "No container"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(c.in, standard(t))
			if plan.State != c.state || plan.Action != c.action || plan.Incomplete != c.incomplete || !strings.Contains(plan.Description, c.says) {
				t.Errorf("Decide = %+v, want %s, %q, incomplete %t and a text with %q", plan, c.state, c.action, c.incomplete, c.says)
			}
			if c.to == 0 && len(plan.Limits) > 0 || c.to > 0 && (len(plan.Limits) != 1 || plan.Limits[0].To != c.to) {
				t.Errorf("limits %+v, want %v", plan.Limits, c.to)
			}
		})
	}
}

func TestDecide_GuaranteedPod(t *testing.T) {
	plan := Decide(Input{Guaranteed: true, Containers: []Container{{Name: "app", Limit: 500, Throttled: flat(168, 0.5)}}}, standard(t))
	if len(plan.Limits) != 1 || !plan.Limits[0].WithRequest || !strings.Contains(plan.Description, "stay Guaranteed") {
		t.Errorf("Decide of a guaranteed pod = %+v, want the request to change with the limit", plan)
	}
}

func TestParseSettings(t *testing.T) {
	if s := standard(t); s != (Settings{Share: 0.25, Percentile: 0.95, MaxFactor: 2, Hours: 168, MinHours: 24}) {
		t.Errorf("ParseSettings(nil) = %+v, want the defaults", s)
	}

	for key, value := range map[string]string{"throttled-share": "25", "max-factor": "1", "min-history": "x", "limit": "1"} {
		if _, err := ParseSettings(map[string]string{key: value}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("ParseSettings(%s=%s): %v, want an error that names the key", key, value, err)
		}
	}
}

// FuzzDecide checks that a limit never decreases, never exceeds the factor and is unchanged without data.
func FuzzDecide(f *testing.F) {
	f.Add(int64(500), 168, 0.5, 2.0, int64(8000))
	f.Add(int64(math.MaxInt64), 24, math.Inf(1), math.Inf(1), int64(0))
	f.Add(int64(-5), 0, math.NaN(), 0.0, int64(-1))

	f.Fuzz(func(t *testing.T, limit int64, hours int, share, factor float64, node int64) {
		if hours < 0 || hours > 1000 || !(factor <= 10) {
			return
		}

		in := Input{MaxCPU: units.MilliCPU(node), Containers: []Container{{Name: "app", Limit: units.MilliCPU(limit), Throttled: flat(hours, share)}}}
		s := Settings{Share: 0.25, Percentile: 0.95, MaxFactor: factor, Hours: 168, MinHours: 24}

		plan := Decide(in, s)
		if plan.Description == "" {
			t.Errorf("Decide = %+v, want a description", plan)
		}

		for _, l := range plan.Limits {
			most := float64(limit)*max(factor, minFactor) + step
			if l.To <= l.From || float64(l.To) > most*(1+1e-12) || hours < 24 || !(share > 0.25) {
				t.Errorf("limit %+v of %v, %d hours of %v, want a bounded raise with enough data", l, limit, hours, share)
			}
		}
	})
}
