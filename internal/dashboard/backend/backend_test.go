// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/recommendation/pricebook"
	"crane.io/crane/pkg/rightsize"
)

// newFixtureConfig returns settings without a cluster and without a history.
func newFixtureConfig(t testing.TB, name string) Config {
	t.Helper()

	policy, err := rightsize.PolicyByName(rightsize.DefaultPolicy)
	if err != nil {
		t.Fatalf("PolicyByName(%q): %v", rightsize.DefaultPolicy, err)
	}

	prices, err := pricebook.Load("")
	if err != nil {
		t.Fatalf("loading the built-in prices: %v", err)
	}

	access := &clusteraccess.Access{}
	return Config{
		ClusterName: name,
		Access:      access,
		Personal:    access,
		Policies:    rightsize.NewPolicySet(policy),
		Prices:      prices,
		Clock:       clock.RealClock{},
		Prometheus:  historyserver.NewServer(),
		Cache:       profile.CacheConfig{Off: true},
		Resource:    "cpu",
	}
}

// newFileView returns a view of a directory with one series of 14 days at one minute.
func newFileView(t *testing.T) (*View, contract.Target) {
	t.Helper()

	dir := t.TempDir()
	var text strings.Builder
	text.WriteString("ts,value\n")

	const start = 1_700_006_400
	for i := range 14 * 24 * 60 {
		text.WriteString(strconv.Itoa(start+i*60) + "," + strconv.FormatFloat(0.5+0.3*math.Sin(float64(i)/100), 'f', 4, 64) + "\n")
	}

	if err := os.WriteFile(filepath.Join(dir, "web.csv"), []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}

	config := newFixtureConfig(t, "files")
	config.From = dir

	return New(config), contract.Target{Cluster: "files", Kind: "Series", Name: "web"}
}

// TestWhatIf checks that each setting changes the request as it should, on the history of the workload.
func TestWhatIf(t *testing.T) {
	v, target := newFileView(t)
	request := func(s contract.WhatIfSettings) float64 {
		out, err := v.WhatIf(t.Context(), target, "web", s)
		if err != nil {
			t.Fatal(err)
		}

		if out.CPU == nil || out.CPU.RequestRecommended == nil || out.CPU.Replay == nil || len(out.CPU.Replay.Outcomes) < 4 {
			t.Fatalf("WhatIf = %+v, want a request and a replay of 4 outcomes or more", out.CPU)
		}

		return *out.CPU.RequestRecommended
	}

	share := func(f float64) *float64 { return &f }
	median := request(contract.WhatIfSettings{CPUPercentile: share(0.5)})
	high := request(contract.WhatIfSettings{CPUPercentile: share(0.99)})
	if median > 0.55 || high < 0.75 {
		t.Errorf("p50 gives %v, p99 %v, want at most 0.55 and at least 0.75: the usage is from 0.2 to 0.8 around 0.5", median, high)
	}
	if wide := request(contract.WhatIfSettings{CPUPercentile: share(0.5), CPUMargin: share(1)}); wide < 1.9*median {
		t.Errorf("a margin of 100 %% gives %v, want twice %v", wide, median)
	}

	if loose, strict := request(contract.WhatIfSettings{Target: share(0.3)}), request(contract.WhatIfSettings{Target: share(0.005)}); loose >= strict {
		t.Errorf("a target of 30 %% gives %v, want less than %v of 0.5 %%", loose, strict)
	}
	if _, err := v.WhatIf(t.Context(), target, "none", contract.WhatIfSettings{}); dashboard.FailureOf(err).Body.Reason != contract.ReasonNotFound {
		t.Errorf("WhatIf of an unknown container = %v, want the reason %s", err, contract.ReasonNotFound)
	}
}

// TestWorkloadOfFiles checks steps and replay of a file, its series, and that pages of clusters say that they are not served.
func TestWorkloadOfFiles(t *testing.T) {
	v, target := newFileView(t)
	detail, err := v.Workload(t.Context(), target)
	if err != nil || len(detail.Rows) != 1 || len(detail.Containers) != 1 || len(detail.Containers[0].CPU.Steps) == 0 || detail.Containers[0].Memory != nil {
		t.Fatalf("Workload of a file = %+v, %v, want 1 container with steps of CPU alone", detail, err)
	}

	s, err := v.Series(t.Context(), target, dashboard.SeriesRange{From: time.Now().Add(-time.Hour), To: time.Now(), Points: 500})
	if err != nil || len(s.Series) != 1 || !s.Thinned || len(s.Series[0].T) > 500 || s.To-s.From != 14*24*3600 {
		t.Errorf("Series of a file = %v, %d to %d, want 14 days in at most 500 points", err, s.From, s.To)
	}
	if _, err := v.Health(t.Context()); dashboard.FailureOf(err).Body.Reason != contract.ReasonNotServed {
		t.Errorf("Health of files = %v, want the reason %s", err, contract.ReasonNotServed)
	}
}

// TestPodPattern checks that the pods of a workload match, and those of workloads with a longer name do not.
func TestPodPattern(t *testing.T) {
	for _, c := range []struct {
		kind, pod string
		want      bool
	}{
		{"Deployment", "web-6d4cf56db6-x8f2k", true},
		{"Deployment", "web-api-6d4cf56db6-x8f2k", false},
		{"Deployment", "web-0", false},
		{"StatefulSet", "web-11", true},
		{"StatefulSet", "web-api-0", false},
		{"DaemonSet", "web-x8f2k", true},
		{"DaemonSet", "web-6d4cf56db6-x8f2k", false},
		{"Job", "web-x8f2k", true},
		{"CronJob", "web-28345-x8f2k", true},
		{"Pod", "web", true},
		{"Pod", "web-0", false},
	} {
		matches, err := regexp.MatchString("^(?:"+podPattern(c.kind, "web")+")$", c.pod)
		if err != nil || matches != c.want {
			t.Errorf("podPattern(%s, web) matches %s: %v, %v, want %v", c.kind, c.pod, matches, err, c.want)
		}
	}
}
