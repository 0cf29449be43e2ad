// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

var now = time.Date(2026, 1, 20, 0, 0, 0, 0, time.UTC)

// used returns the profile of days of constant use before now.
func used(days int, cores, bytes float64) *rightsize.Profile {
	p := rightsize.NewProfile()
	fill := func(v float64) rightsize.Usage {
		s := series.Series{Start: now.Add(-time.Duration(days) * 24 * time.Hour), Step: 5 * time.Minute, Values: make([]float64, days*24*12)}
		for i := range s.Values {
			s.Values[i] = v
		}

		return rightsize.Usage{Pod: "p", Series: s}
	}

	if cores > 0 {
		p.AddCPU(fill(cores))
	}
	if bytes > 0 {
		p.AddMemory(fill(bytes))
	}

	return p
}

func policy(t *testing.T) rightsize.Policy {
	t.Helper()

	p, err := rightsize.PolicyByName(rightsize.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}

	return p
}

func TestDecide(t *testing.T) {
	const mib = 1 << 20
	week := used(10, 0.5, 100*mib)
	asItIs := Decide(Input{Policy: policy(t), Now: now, Containers: []Container{{Name: "a", Profile: week}}}).Containers[0].Target
	for name, c := range map[string]struct {
		containers []Container
		state      recommend.State
		action     recommend.Action
		incomplete bool
		says       string
	}{
		"change":           {[]Container{{Name: "a", Profile: week}}, recommend.Ready, recommend.Patch, false, "cpu not set -> "},
		"no change":        {[]Container{{Name: "a", Profile: week, Current: asItIs}}, recommend.Ready, recommend.NoAction, false, "cpu stays "},
		"one of two":       {[]Container{{Name: "a", Profile: week}, {Name: "b"}}, recommend.Ready, recommend.Patch, true, "b: cpu has no number yet"},
		"one of resources": {[]Container{{Name: "a", Profile: used(10, 0.5, 0)}}, recommend.Ready, recommend.Patch, true, "memory has no number yet"},
		"too young":        {[]Container{{Name: "a", Profile: used(2, 0.5, 100*mib)}}, recommend.Learning, "", true, "has no number yet"},
		"young and unseen": {[]Container{{Name: "a", Profile: used(2, 0.5, 100*mib)}, {Name: "b"}}, recommend.Learning, "", true, "has no number yet"},
		"unseen":           {[]Container{{Name: "a"}}, recommend.NoData, "", true, "has no number yet"},
		"init only":        {[]Container{{Name: "a", Init: true, Profile: week}}, recommend.NoData, "", false, "no container"},
		"none":             {nil, recommend.NoData, "", false, "no container"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(Input{Policy: policy(t), Now: now, Containers: c.containers})
			if p.State != c.state || p.Action != c.action || p.Incomplete != c.incomplete || !strings.Contains(p.Description, c.says) {
				t.Errorf("Decide = %s, %q, incomplete %t, %q, want %s, %q, %t and a text with %q", p.State, p.Action, p.Incomplete, p.Description, c.state, c.action, c.incomplete, c.says)
			}
		})
	}
}

// TestDecide_NoNumber: a container without a number does not make a workload change.
func TestDecide_NoNumber(t *testing.T) {
	m := units.MilliCPU(100)
	week := used(10, 0.5, 100<<20)
	asItIs := Decide(Input{Policy: policy(t), Now: now, Containers: []Container{{Name: "a", Profile: week}}}).Containers[0].Target

	p := Decide(Input{Policy: policy(t), Now: now, Containers: []Container{
		{Name: "a", Profile: week, Current: asItIs}, {Name: "b", Current: rightsize.Resources{CPURequest: &m}},
	}})
	if p.Action != recommend.NoAction {
		t.Errorf("action %q: %s, want none", p.Action, p.Description)
	}
}
