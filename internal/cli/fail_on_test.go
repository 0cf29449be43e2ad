// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"crane.io/crane/pkg/units"
)

func TestFailOn(t *testing.T) {
	for _, c := range []struct {
		rules string
		want  []string
	}{
		{"over=99%", []string{"shop/Deployment/web, container proxy: memory request 128Mi is 100% above the recommendation 64Mi (--fail-on over=99%)"}},
		{"over=100%", nil}, // the limit is inclusive
		{"under=10%", []string{"container app: memory request 1Gi is 33% below the recommendation 1536Mi"}},
		{"under=34%", nil},
		{"missing", []string{"container app: cpu has no request, 12345m is recommended"}},
		{"over=0%,under=0%,missing", []string{"proxy: memory", "app: memory", "app: cpu"}},
	} {
		rules, err := parseFailRules(strings.Split(c.rules, ","))
		if err != nil {
			t.Fatal(err)
		}

		var w bytes.Buffer
		err = fixtureReport().failOn(&w, rules)
		var coded *exitError
		if len(c.want) == 0 != (err == nil) || err != nil && (!errors.As(err, &coded) || coded.code != exitFailOn) {
			t.Errorf("failOn(%s) = %v, want exit code %d for %q", c.rules, err, exitFailOn, c.want)
		}
		if strings.Count(w.String(), "\n") != len(c.want) {
			t.Errorf("%s: unexpected output\n%s", c.rules, w.String())
		}

		for _, want := range c.want {
			if !strings.Contains(w.String(), want) {
				t.Errorf("%s: want %q in\n%s", c.rules, want, w.String())
			}
		}
	}
}

// TestFailOnBoundary checks that 130m is within 30% above 100m, although 130/100 - 1 exceeds 0.3 in floating point.
func TestFailOnBoundary(t *testing.T) {
	rules, err := parseFailRules([]string{"over=30%"})
	if err != nil {
		t.Fatal(err)
	}

	r := fixtureReport()
	r.Items[0].Plan.Containers[0].Current.CPURequest = new(units.MilliCPU(130))
	r.Items[0].Plan.Containers[0].Current.MemoryRequest = nil
	if err := r.failOn(&bytes.Buffer{}, rules); err != nil {
		t.Error(err)
	}

	r.Items[0].Plan.Containers[0].Current.CPURequest = new(units.MilliCPU(131))
	if err := r.failOn(&bytes.Buffer{}, rules); err == nil {
		t.Error("131m passes over=30% of 100m, want an error")
	}
}

func TestFailOnErrors(t *testing.T) {
	for _, bad := range []string{"over", "over=", "over=30", "over=x%", "over=-1%", "over=NaN%", "over=Inf%", "under=100%", "above=3%", "missing=1%", ""} {
		code, _, errOut := runCrane(t, "recommend", "--prometheus", "http://x", "--fail-on="+bad)
		if bad == "" { // an empty list is valid
			continue
		}

		if code != exitUsage || !strings.Contains(errOut, "over=30%,under=10%") && !strings.Contains(errOut, "out of range") {
			t.Errorf("--fail-on %q: exit %d, %s, want %d with the form of rules", bad, code, errOut, exitUsage)
		}
	}

	if code, _, errOut := runCrane(t, "recommend", "--from", t.TempDir(), "--fail-on", "over=1%"); code != exitUsage || !strings.Contains(errOut, "--fail-on cannot be combined") {
		t.Errorf("--fail-on with --from: exit %d, %s, want %d", code, errOut, exitUsage)
	}
}

func FuzzFailRule(f *testing.F) {
	for _, seed := range []string{"over=30%", "under=10%", "missing", "over=1e3%", "=%"} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		rule, err := parseFailRule(text)
		if err == nil && (!(rule.share >= 0) || rule.finding == onlyUnder && rule.share >= 1) {
			t.Errorf("parsing %q = %+v, want a share of 0 or more, below 1 for under", text, rule)
		}
	})
}
