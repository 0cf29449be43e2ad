// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"strings"
	"testing"
)

func TestRecommender_Validate(t *testing.T) {
	configure := func(map[string]string) (Evaluation, error) { return nil, nil }
	for _, c := range []struct {
		name        string
		recommender Recommender
		// want is a part of the error; empty for none.
		want string
	}{
		{"complete", Recommender{Name: "Headroom2", Configure: configure}, ""},
		{"no name", Recommender{Configure: configure}, "CamelCase"},
		{"lower case", Recommender{Name: "headroom", Configure: configure}, "CamelCase"},
		{"longer than a label value", Recommender{Name: strings.Repeat("A", 64), Configure: configure}, "CamelCase"},
		{"line break", Recommender{Name: "Head\nroom", Configure: configure}, "CamelCase"},
		{"no function", Recommender{Name: "Headroom"}, "Configure is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.recommender.Validate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Validate of %q = %v, want an error with %q", c.recommender.Name, err, c.want)
			}
		})
	}
}

func TestRecommendation_Validate(t *testing.T) {
	for _, c := range []struct {
		name           string
		recommendation Recommendation
		want           string
	}{
		{"patch", Recommendation{Plan: Plan{State: Ready, Action: Patch}, Current: 1, Recommended: 2}, ""},
		{"nothing to change", Recommendation{Plan: Plan{State: Ready, Action: NoAction}}, ""},
		{"no history", Recommendation{Plan: Plan{State: Learning}}, ""},
		{"zero value", Recommendation{}, "unknown state"},
		{"no action", Recommendation{Plan: Plan{State: Ready}}, "unknown action"},
		{"unknown action", Recommendation{Plan: Plan{State: Ready, Action: "Restart"}}, "unknown action"},
		{"proposal without history", Recommendation{Plan: Plan{State: Learning}, Value: 1}, "has a proposal"},
		{"action of a refused target", Recommendation{Plan: Plan{State: Refused, Action: Patch}}, "has a proposal"},
		{"patch without the present state", Recommendation{Plan: Plan{State: Ready, Action: Patch}, Recommended: 2}, "only one of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.recommendation.Validate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Validate of %+v = %v, want an error with %q", c.recommendation, err, c.want)
			}
		})
	}
}
