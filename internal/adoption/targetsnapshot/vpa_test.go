// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/adoption/targetindex"
)

type stubVPAs struct {
	name string
	err  error
}

func (s stubVPAs) Find(context.Context, string, time.Time) (map[targetindex.Key]string, error) {
	return map[targetindex.Key]string{{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: s.name}: "vpa"}, s.err
}

// TestDecisionInput_VerticalPodAutoscaler: the Recommendation of a rule changes nothing beside an autoscaler that acts on the same pods.
func TestDecisionInput_VerticalPodAutoscaler(t *testing.T) {
	for name, c := range map[string]struct {
		vpas    stubVPAs
		blocked bool
	}{
		"the same workload": {stubVPAs{name: "web"}, true},
		"another workload":  {stubVPAs{name: "db"}, false},
	} {
		previewer, rec := newFixture(t)
		previewer.VPAs = c.vpas

		out, err := previewer.Preview(t.Context(), rec, nil, time.Now())
		if err != nil || (out.Refused != "") != c.blocked || (len(out.Requests) == 0) != c.blocked {
			t.Errorf("%s: Preview refuses with %q and sends %v, %v, want a refusal: %t", name, out.Refused, out.Requests, err, c.blocked)
		}
		if c.blocked && !strings.Contains(out.Refused, "VerticalPodAutoscaler vpa") {
			t.Errorf("%s: Preview refuses with %q, want the name of the autoscaler", name, out.Refused)
		}
	}

	previewer, rec := newFixture(t)
	unreachable := errors.New("no answer")
	previewer.VPAs = stubVPAs{err: unreachable}
	if _, err := previewer.Preview(t.Context(), rec, nil, time.Now()); !errors.Is(err, unreachable) {
		t.Errorf("Preview without an answer about VerticalPodAutoscalers = %v, want the error: unknown is not none", err)
	}
}
