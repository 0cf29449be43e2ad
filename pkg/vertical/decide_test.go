// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"math"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func estimate(v float64) Estimate {
	return Estimate{Estimator: TypePercentile, Value: v, Reason: "p99 of 7 days"}
}

func failedEstimate(name string, priority int) Estimate {
	return Estimate{Estimator: name, Priority: priority, Failure: "no answer"}
}

func TestDecide(t *testing.T) {
	policy := func(change func(*Policy)) Policy {
		p := DefaultPolicy()
		change(&p)
		return p
	}

	same := policy(func(*Policy) {})
	for name, c := range map[string]struct {
		in     Input
		action Action
		// request and target are in millicores.
		request, target int64
		reason          string
	}{
		"more is needed":         {Input{Policy: same, Current: 500, Estimates: []Estimate{estimate(600)}}, Raise, 600, 600, "to be raised from 500m"},
		"a little less":          {Input{Policy: same, Current: 500, Estimates: []Estimate{estimate(490)}}, Hold, 500, 490, "98 % of 500m"},
		"less, above 35 %":       {Input{Policy: same, Current: 1000, Estimates: []Estimate{estimate(360)}}, Hold, 1000, 360, "lowered below 35 %"},
		"much less":              {Input{Policy: same, Current: 1000, Estimates: []Estimate{estimate(340)}}, Lower, 340, 340, "to be lowered from 1"},
		"no request":             {Input{Policy: same, Estimates: []Estimate{estimate(340)}}, Raise, 340, 340, "requests nothing yet"},
		"equal":                  {Input{Policy: same, Current: 340, Estimates: []Estimate{estimate(340)}}, Hold, 340, 340, "that is the current request"},
		"no estimate":            {Input{Policy: same, Current: 500, Request: 500}, None, 0, 0, "no estimator has an answer"},
		"estimates are gone":     {Input{Policy: same, Current: 600, Request: 500, Estimates: []Estimate{failedEstimate(TypePercentile, 0)}}, Hold, 600, 0, "Percentile: no answer"},
		"NaN":                    {Input{Policy: same, Current: 500, Request: 500, Estimates: []Estimate{estimate(math.NaN())}}, None, 0, 0, "NaN is no size"},
		"infinite":               {Input{Policy: same, Current: 500, Request: 500, Estimates: []Estimate{estimate(math.Inf(1))}}, None, 0, 0, "no size"},
		"negative":               {Input{Policy: same, Current: 500, Request: 500, Estimates: []Estimate{estimate(-3)}}, None, 0, 0, "no size"},
		"NaN beside a number":    {Input{Policy: same, Current: 500, Estimates: []Estimate{estimate(math.NaN()), estimate(900)}}, Raise, 900, 900, ""},
		"higher priority wins":   {Input{Policy: same, Current: 500, Estimates: []Estimate{estimate(900), {Estimator: "Mine", Priority: 5, Value: 700}}}, Raise, 700, 700, "Mine estimates 700m"},
		"larger of equals":       {Input{Policy: same, Current: 500, Estimates: []Estimate{estimate(600), {Estimator: "Mine", Value: 700}}}, Raise, 700, 700, "Mine"},
		"higher priority fails":  {Input{Policy: same, Current: 500, Estimates: []Estimate{estimate(900), failedEstimate("Mine", 5)}}, Raise, 900, 900, "Percentile"},
		"fails, nothing lowered": {Input{Policy: same, Current: 1000, Estimates: []Estimate{estimate(100), failedEstimate("Mine", 5)}}, Hold, 1000, 100, "Mine fails, and without that nothing is lowered"},
		"lower priority fails":   {Input{Policy: same, Current: 1000, Estimates: []Estimate{estimate(100), failedEstimate("Mine", -5)}}, Lower, 100, 100, ""},
		"learning":               {Input{Policy: same, Current: 1000, Estimates: []Estimate{{Estimator: "Mine", Value: 100}, {Estimator: TypePercentile, Pending: "learning"}}}, Hold, 1000, 100, "has no answer yet"},
		"a floor hides nothing":  {Input{Policy: same, Current: 500, Estimates: []Estimate{estimate(900), {Estimator: TypeOOM, Priority: 9, Value: 700, LowerBoundOnly: true}}}, Raise, 900, 900, "Percentile"},
		"a floor never lowers":   {Input{Policy: same, Current: 5000, Estimates: []Estimate{{Estimator: TypeOOM, Value: 700, LowerBoundOnly: true}}}, Hold, 5000, 700, "the maximum need is unknown"},
		"maxAllowed":             {Input{Policy: policy(func(p *Policy) { p.Max = Amounts{units.CPU: 800} }), Current: 500, Estimates: []Estimate{estimate(900)}}, Raise, 800, 800, "maxAllowed is 800m"},
		"above maxAllowed":       {Input{Policy: policy(func(p *Policy) { p.Max = Amounts{units.CPU: 800} }), Current: 900, Estimates: []Estimate{estimate(900)}}, Lower, 800, 800, "to be lowered from 900m"},
		"minAllowed":             {Input{Policy: policy(func(p *Policy) { p.Min = Amounts{units.CPU: 300} }), Current: 1000, Estimates: []Estimate{estimate(10)}}, Lower, 300, 300, "minAllowed is 300m"},
		"min above max": {Input{Policy: policy(func(p *Policy) {
			p.Min = Amounts{units.CPU: 300}
			p.Max = Amounts{units.CPU: 200}
		}), Current: 1000, Request: 1000, Estimates: []Estimate{estimate(10)}}, None, 0, 0, "is above maxAllowed 200m"},
		"thresholds that fight":   {Input{Policy: policy(func(p *Policy) { p.Down.Thresholds = Amounts{units.CPU: 99} }), Current: 1000, Request: 1000, Estimates: []Estimate{estimate(10)}}, None, 0, 0, "threshold"},
		"larger than any node":    {Input{Policy: same, Current: 500, NodeCapacity: 4000, Estimates: []Estimate{estimate(9000)}}, Raise, 4000, 4000, "the largest node has 4 for pods"},
		"not controlled":          {Input{Policy: policy(func(p *Policy) { p.Controlled = []units.Resource{units.Memory} }), Current: 500, Estimates: []Estimate{estimate(900)}}, None, 0, 0, "not among"},
		"raising is off":          {Input{Policy: policy(func(p *Policy) { p.Up.Off = true }), Current: 500, Estimates: []Estimate{estimate(900)}}, Hold, 500, 900, "raising is off"},
		"lowering is off":         {Input{Policy: policy(func(p *Policy) { p.Down.Off = true }), Current: 500, Estimates: []Estimate{estimate(9)}}, Hold, 500, 9, "lowering is off"},
		"raised just now":         {Input{Policy: same, Current: 500, Estimates: []Estimate{estimate(900)}, LastChanges: ChangeTimes{RaisedAt: start.Add(-time.Minute)}}, Hold, 500, 900, "it stays 500m until 2026-03-01T12:01:30Z, as it was raised at 2026-03-01T11:59:00Z"},
		"raised a while ago":      {Input{Policy: same, Current: 500, Estimates: []Estimate{estimate(900)}, LastChanges: ChangeTimes{RaisedAt: start.Add(-3 * time.Minute)}}, Raise, 900, 900, ""},
		"lowered just now":        {Input{Policy: same, Current: 500, Estimates: []Estimate{estimate(9)}, LastChanges: ChangeTimes{LoweredAt: start.Add(-time.Hour)}}, Hold, 500, 9, "lowered at"},
		"raised, then lowered":    {Input{Policy: same, Current: 500, Estimates: []Estimate{estimate(9)}, LastChanges: ChangeTimes{RaisedAt: start.Add(-time.Hour)}}, Hold, 500, 9, "raised at"},
		"moved in the far future": {Input{Policy: same, Current: 500, Estimates: []Estimate{estimate(900)}, LastChanges: ChangeTimes{RaisedAt: start.Add(1000 * time.Hour)}}, Raise, 900, 900, ""},
		"a limit that stays":      {Input{Policy: policy(func(p *Policy) { p.RequestsOnly = true }), Current: 500, Request: 500, Limit: 600, Estimates: []Estimate{estimate(900)}}, Raise, 600, 600, "its limit stays 600m"},
	} {
		c.in.Resource = units.CPU
		c.in.Now = start
		got := Decide(c.in)
		if got.Action != c.action || got.Request != c.request || got.Target != c.target || !strings.Contains(got.Reason, c.reason) {
			t.Errorf("%s: Decide = %+v, want %s, request %d, target %d, reason %q", name, got, c.action, c.request, c.target, c.reason)
		}
		if strings.Contains(got.Reason, "0x") || len(got.Reason) > 1024 {
			t.Errorf("%s: reason %q, want a readable text of at most 1024 bytes", name, got.Reason)
		}
	}
}

func TestDecide_Limits(t *testing.T) {
	p := DefaultPolicy()
	for name, c := range map[string]struct {
		only                        bool
		to, request, limit, becomes int64
	}{
		"in proportion":       {false, 200, 100, 300, 600},
		"equal stays equal":   {false, 170, 100, 100, 170},
		"no limit":            {false, 200, 100, 0, 0},
		"requests only":       {true, 200, 100, 300, 0},
		"ten times":           {false, 200, 100, 1000, 2000},
		"10.99 times":         {false, 200, 100, 1099, 1099},
		"a formality":         {false, 200, 1, 4000, 4000},
		"a formality, raised": {false, 5000, 1, 4000, 5000},
		"without a request":   {false, 200, 0, 300, 300},
		"never below":         {false, 3, 3, 3, 3},
	} {
		p.RequestsOnly = c.only
		if got := p.limitFor(c.to, c.request, c.limit); got != c.becomes {
			t.Errorf("%s: %d, want %d", name, got, c.becomes)
		}
	}
}

// TestDecide_Bounds checks that the bounds enclose the target and stay within the policy.
func TestDecide_Bounds(t *testing.T) {
	p := DefaultPolicy()
	p.Max = Amounts{units.CPU: 1000}
	e := estimate(600)
	e.Lower, e.Upper = 300, 1500

	got := Decide(Input{Resource: units.CPU, Now: start, Policy: p, Current: 500, Estimates: []Estimate{e}})
	if got.Lower != 300 || got.Upper != 1000 || got.Uncapped != 600 {
		t.Errorf("Decide = %+v, want bounds 300 and 1000, uncapped 600", got)
	}

	got = Decide(Input{Resource: units.CPU, Now: start, Policy: p, Current: 500, Estimates: []Estimate{estimate(600)}})
	if got.Lower != 0 || got.Upper != 0 {
		t.Errorf("Decide with unknown bounds = %+v, want 0 for both", got)
	}
}

func TestDecide_WholeMebibytes(t *testing.T) {
	got := Decide(Input{Resource: units.Memory, Now: start, Policy: DefaultPolicy(), Current: 100 << 20, Estimates: []Estimate{estimate(200.3 * (1 << 20))}})
	if got.Request != 201<<20 {
		t.Errorf("Decide = %+v, want a request of 201 MiB", got)
	}
}
