// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// drawn is the number of cases that tests draw.
const drawn = 100

// TestDraw_Seed checks that a seed determines the case, and that another one gives another.
func TestDraw_Seed(t *testing.T) {
	if diff := cmp.Diff(Draw(7, 12), Draw(7, 12)); diff != "" {
		t.Errorf("Draw of one seed twice (-first +second):\n%s", diff)
	}
	if Draw(7, 12).String() == Draw(8, 12).String() {
		t.Error("Draw of seeds 7 and 8 returned the same case, want different ones")
	}
}

// TestDraw_Kinds checks that each kind of rule, workload and event is drawn.
func TestDraw_Kinds(t *testing.T) {
	var all strings.Builder
	for seed := range uint64(drawn) {
		all.WriteString(Draw(seed, 12).String())
	}

	for _, want := range []string{
		`"type":"Pod"`, `"type":"Container"`, `"ratio"`, `"scope":"PriorityClass"`, `"scope":"NotBestEffort"`, `"podSecurity":"baseline"`,
		`"foreign":"limits"`, `"foreignLast"`, `"minCPU"`, `"kind":"Deployment"`, `"kind":"StatefulSet"`, `"kind":"DaemonSet"`, `"init"`, `"sidecar"`,
		`"podLevel"`, `"onDelete"`, `"partition"`, `"recreate"`, `"paused"`, `"autoscaled"`, `"vpa":"Recreate"`, `"priority"`, `"hostNetwork"`,
		`"hugePages"`, `"adoptTemplate"`, `"reach":"InPlaceOrRecreate"`,
		string(DeletePod), string(Drain), string(Crash), string(RollOut), string(Edit), string(Scale), string(Recommend), string(Off), string(On),
		string(OptOut), string(OptIn), string(LimitRangeAppears), string(LimitRangeGone), string(QuotaAppears), string(QuotaGone),
		string(PolicyAppears), string(PolicyGone),
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("%d drawn cases contain no %s, want some", drawn, want)
		}
	}
}

// TestShrink checks that each smaller case prints less, keeps the rounds of its events, and names workloads that it has.
func TestShrink(t *testing.T) {
	for seed := range uint64(drawn) {
		c := Draw(seed, 12)
		for _, smaller := range c.Shrink() {
			if cmp.Equal(c, smaller) {
				t.Errorf("Shrink of seed %d returned the same case, want a smaller one:\n%s", seed, smaller)
			}

			for _, e := range smaller.Events {
				if e.Workload >= len(smaller.Workloads) {
					t.Errorf("Shrink of seed %d returned event %+v for %d workloads, want one of them", seed, e, len(smaller.Workloads))
				}
			}
		}
	}
}

// TestShrink_Failing checks that repeated shrinking keeps what fails alone.
func TestShrink_Failing(t *testing.T) {
	fails := func(c Case) bool {
		return slices.ContainsFunc(c.Events, func(e Event) bool { return e.Kind == Drain })
	}

	c := Draw(0, 12)
	for seed := uint64(1); !fails(c); seed++ {
		c = Draw(seed, 12)
	}

	for smaller := true; smaller; {
		i := slices.IndexFunc(c.Shrink(), fails)
		smaller = i >= 0
		if smaller {
			c = c.Shrink()[i]
		}
	}

	events := slices.DeleteFunc(slices.Clone(c.Events), func(e Event) bool { return e.Kind == Nothing })
	if len(events) != 1 || len(c.Workloads) != 1 || len(c.Namespace.LimitRanges)+len(c.Namespace.Quotas) > 0 {
		t.Errorf("Shrink ended with %s, want one event, one workload and no rules", c)
	}
}

// TestRecommendedValue checks that recommended values can be read.
func TestRecommendedValue(t *testing.T) {
	for seed := range uint64(drawn) {
		for _, w := range Draw(seed, 0).Workloads {
			var value analysisv1alpha1.ProposedRecommendation
			text := RecommendedValue(w.Containers)
			if err := yaml.UnmarshalStrict([]byte(text), &value); err != nil || len(value.ResourceRequest.Containers) != len(w.Containers) {
				t.Errorf("RecommendedValue(%v) = %q, %v, want %d containers", w.Containers, text, err, len(w.Containers))
			}
		}
	}
}
