// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// explainFixtureReport returns the report of one workload with replays: an app with ten days of history and too large
// requests, and a sidecar with one day.
func explainFixtureReport(t *testing.T) *report {
	t.Helper()

	policy, err := rightsize.PolicyByName(rightsize.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}

	now := time.Date(2026, 1, 20, 0, 0, 0, 0, time.UTC)
	profile := func(days int) *rightsize.Profile {
		p := rightsize.NewProfile()
		usage := func(scale float64) rightsize.Usage {
			s := series.Series{Start: now.AddDate(0, 0, -days), Step: 5 * time.Minute, Values: make([]float64, days*288)}
			for i := range s.Values {
				s.Values[i] = scale * (1 - 0.5*math.Cos(2*math.Pi*float64(i)/288))
			}

			return rightsize.Usage{Pod: "p", Series: s}
		}

		p.AddCPU(usage(0.2))
		p.AddMemory(usage(200 << 20))
		return p
	}

	w := workload.Workload{
		Ref:        workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		Replicas:   3,
		Containers: []workload.Container{{Name: "app", Role: workload.App}, {Name: "proxy", Role: workload.Sidecar}},
	}

	in := resource.Input{Policy: policy, Now: now, Containers: []resource.Container{
		{Name: "app", Profile: profile(10), Current: rightsize.Resources{
			CPURequest: new(units.MilliCPU(1000)), CPULimit: new(units.MilliCPU(2000)), MemoryRequest: new(units.Bytes(1 << 30)), MemoryLimit: new(units.Bytes(1 << 30)),
		}},
		{Name: "proxy", Profile: profile(1)},
	}}

	it := sizereport.Item{Workload: w, Plan: resource.Decide(in), Evidence: resource.CollectEvidence(in)}
	for _, c := range in.Containers {
		it.Usage = append(it.Usage, sizereport.SummarizeUsage(c.Profile, now.AddDate(0, 0, -14), now))
	}

	r := &report{Report: &sizereport.Report{
		PolicyName: policy.Name, Window: 14 * 24 * time.Hour, Now: now, Resources: []metrics.UsageKind{metrics.CPU, metrics.Memory},
		DefaultPolicy: policy, Items: []sizereport.Item{it},
	}}
	setDefaultPrices(t, r)

	return r
}

func TestExplainPage(t *testing.T) {
	var out bytes.Buffer
	if err := renderExplain(Streams{Out: &out}, explainFixtureReport(t)); err != nil {
		t.Fatal(err)
	}

	golden(t, "explain.txt", out.Bytes())
	for line := range strings.Lines(out.String()) {
		if len(line) > 111 {
			t.Errorf("a line of %d columns, want at most 111: %s", len(line), line)
		}
	}
}

// TestHTMLShowsReplay checks that the page contains the replay and its chart and refers to no external resource.
func TestHTMLShowsReplay(t *testing.T) {
	r := explainFixtureReport(t)
	r.WithReplays = true
	page := render(t, outputHTML, r)
	golden(t, "explain.html", []byte(page))
	want := []string{
		"saves 54.41 USD a month over 3 pods", "Each of 3 days from 2026-01-17", "<td>vpa</td>", "<td>krr-p95</td>", "<td>gocrane</td>", "<td>today</td>",
		"Days above limit", "Throttled", "Min/day over", "<polyline points=", "p99.5: slack", "Policy: the maximum of the daily maxima of 14d", "Not replayed: not enough history",
	}

	for _, text := range want {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q, want it", text)
		}
	}

	if n := strings.Count(page, "<svg "); n != 2 {
		t.Errorf("%d charts, want one for CPU and one for memory of the app", n)
	}

	checkSelfContained(t, page)
	r.Items[0].Evidence = nil
	r.WithReplays = false
	if page = render(t, outputHTML, r); strings.Contains(page, "<svg ") || strings.Contains(page, "Not replayed") {
		t.Error("the page without evidence mentions replays, want none")
	}
}

// TestReplayNamesAutoscaler checks that the row of the policy names the autoscaler that keeps the request, and that no other row does.
func TestReplayNamesAutoscaler(t *testing.T) {
	r := explainFixtureReport(t)
	r.WithReplays = true
	const text = "default: not applied, an autoscaler holds the request at 1"

	if page := render(t, outputHTML, r); strings.Contains(page, "not applied") {
		t.Error("the page mentions an autoscaler that does not exist, want no such row")
	}

	cpu := &r.Items[0].Plan.Containers[0].CPU
	cpu.Flags = append(cpu.Flags, rightsize.Flag{Code: rightsize.FlagAutoscaled, Detail: "an autoscaler acts at 60 %"})

	if page := render(t, outputHTML, r); strings.Count(page, "not applied") != 1 || !strings.Contains(page, "<td>"+text+"</td>") {
		t.Errorf("the page lacks the row %q, want it once", text)
	}
}

// TestReplayChartBounds checks that every point lies within the chart and that labels do not overlap.
func TestReplayChartBounds(t *testing.T) {
	for name, replay := range map[string]rightsize.Replay{
		"ordinary": explainFixtureReport(t).Items[0].Evidence[0].CPU,
		"extreme": {Days: 1, Outcomes: []rightsize.Outcome{{Slack: -40, Violation: 1}, {Slack: -40, Violation: 1}, {Slack: 1}}, Curve: []rightsize.CurvePoint{
			{Quantile: 0.5, Slack: -1e9, Violation: 1}, {Quantile: 1, Slack: 0.99},
		}},
		"empty": {Days: 1, Outcomes: []rightsize.Outcome{{}, {}, {}, {}, {}, {}}, Curve: []rightsize.CurvePoint{{}}},
	} {
		c := newHTMLReplay(&replay, resourceSize{resource: metrics.CPU}).Chart
		for _, m := range append(slices.Clone(c.Dots), c.Marks...) {
			if !(m.X >= c.Left && m.X <= c.Right && m.Y >= c.Top && m.Y <= c.Bottom) {
				t.Errorf("%s: point (%v, %v) is outside of the chart, want it inside", name, m.X, m.Y)
			}
		}

		for i, a := range c.Marks {
			for _, b := range c.Marks[:i] {
				if math.Abs(a.X-b.X) < 9 && math.Abs(a.LabelY-b.LabelY) < 11 {
					t.Errorf("%s: label %s overlaps %s, want them apart", name, a.Label, b.Label)
				}
			}
		}

		if n := len(c.XTicks); n < 2 || n > 8 {
			t.Errorf("%s: %d ticks, want 2 to 8", name, n)
		}
	}
}

func TestExplainFiles(t *testing.T) {
	dir := t.TempDir()
	writeSeries(t, dir, "web.csv", 10)
	writeSeries(t, dir, "webhook.csv", 10)

	code, out, errOut := runCrane(t, "recommend", "--from", dir, "--explain", "web")
	if code != exitOK || strings.Contains(out, "webhook") || strings.Contains(out, "no-request-today") {
		t.Errorf("recommend --explain web: exit %d, %s, want web alone:\n%s", code, errOut, out)
	}

	for _, want := range []string{"Series/web", "steps from usage to recommendation", "gocrane", "vpa", "krr-p95", "krr-p99", "other points", "p99.9"} {
		if !strings.Contains(out, want) {
			t.Errorf("the page lacks %q:\n%s", want, out)
		}
	}

	code, out, _ = runCrane(t, "recommend", "--from", dir, "--explain", "series/web", "-o", "json")
	if code != exitOK || strings.Contains(out, "webhook") || !strings.Contains(out, `"replay"`) {
		t.Errorf("recommend --explain web -o json: exit %d, want web alone with replays:\n%s", code, out)
	}

	code, _, errOut = runCrane(t, "recommend", "--from", dir, "--explain", "eb")
	if code != exitNoResult || !strings.Contains(errOut, "similar names: Series/web, Series/webhook") {
		t.Errorf("recommend --explain of a part of names: exit %d, %s, want %d with the similar names", code, errOut, exitNoResult)
	}

	for args, want := range map[string]string{"-o csv": "--output csv", "--only over": "a whole workload"} {
		if code, _, errOut = runCrane(t, append([]string{"recommend", "--from", dir, "--explain", "web"}, strings.Fields(args)...)...); code != exitUsage || !strings.Contains(errOut, want) {
			t.Errorf("recommend --explain web %s: exit %d, %s, want %d with %q", args, code, errOut, exitUsage, want)
		}
	}
}

func TestSelectExplained(t *testing.T) {
	ref := func(namespace, kind, name string) workload.Workload {
		return workload.Workload{Ref: workload.Ref{Namespace: namespace, Kind: kind, Name: name}}
	}

	all := []workload.Workload{
		ref("shop", "Deployment", "web"), ref("shop", "StatefulSet", "web"), ref("test", "Deployment", "web"), ref("shop", "CronJob", "report"),
	}
	for reference, want := range map[string]string{
		"report":                "shop/CronJob/report",
		"cj/report":             "shop/CronJob/report",
		"shop/report":           "shop/CronJob/report",
		"statefulset/web":       "shop/StatefulSet/web",
		"test/web":              "test/Deployment/web",
		"shop/deploy/web":       "shop/Deployment/web",
		"web":                   "several workloads match, specify one of: shop/Deployment/web, shop/StatefulSet/web, test/Deployment/web",
		"shop/web":              "shop/Deployment/web, shop/StatefulSet/web",
		"repo":                  "similar names: shop/CronJob/report",
		"none":                  "none of 4 workloads matches",
		"a/b/c/web":             "no workload matches",
		"web/":                  "no workload matches",
		"shop/deployment/other": "none of 4 workloads",
	} {
		found, err := selectExplained(reference, all)
		if err == nil && (len(found) != 1 || found[0].String() != want) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %s", reference, found, err, want)
		}
		if coded := (*exitError)(nil); err != nil && !errors.As(err, &coded) {
			t.Errorf("%s: the error %v has no exit code, want one", reference, err)
		}
	}
}

// TestExplainCalibration checks that the target, the achieved time and the results of the factors are printed, and that JSON has them.
func TestExplainCalibration(t *testing.T) {
	dir := t.TempDir()
	writeSeries(t, dir, "web.csv", 15)

	out, _, err := execute(t, "recommend", "--from", dir, "--policy", "calibrated", "--target", "0.01", "--explain", "web")
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"calibration: ", "target 14.4 minutes a day: met", "FACTOR MIN/DAY OVER MEAN CORES", "selected", "at most 14.4 minutes a day above the request"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("the explanation lacks %q:\n%s", want, out)
		}
	}

	out, _, err = execute(t, "recommend", "--from", dir, "--policy", "calibrated", "-o", "json")
	if err != nil || !strings.Contains(out, `"achieved"`) || !strings.Contains(out, `"target": 0.005`) {
		t.Errorf("recommend -o json: %v, want the calibration with target and achieved share in\n%s", err, out)
	}

	out, _, err = execute(t, "recommend", "--from", dir, "--policy", "calibrated", "-o", "html")
	if err != nil || strings.Count(out, "<title>factor ") != 39 || strings.Count(out, "selected</text>") != 1 ||
		!strings.Contains(out, `<line class="target"`) || !strings.Contains(out, "Calibration: 0.0 minutes a day above the request in the replay of 12 days") {
		t.Errorf("the page lacks the chart of the calibration, want it: %v", err)
	}

	if _, _, err := execute(t, "recommend", "--from", dir, "--target", "0.01"); err == nil || !strings.Contains(err.Error(), "--policy calibrated") {
		t.Errorf("a target without a calibrated policy: error %v, want a hint to --policy calibrated", err)
	}
	if _, _, err := execute(t, "recommend", "--from", dir, "--reaction"); err == nil || !strings.Contains(err.Error(), "--reaction requires") {
		t.Errorf("a reaction without a calibrated policy: error %v, want what it requires", err)
	}

	out, _, err = execute(t, "recommend", "--from", dir, "--policy", "calibrated", "--reaction", "--explain", "web")
	if err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), "in the replay of 12 days, with raises within the day, target 7.2 minutes a day: met") {
		t.Errorf("--explain with --reaction: %v, want the replay with raises in\n%s", err, out)
	}
	if _, _, err := execute(t, "recommend", "--from", dir, "--policy", "calibrated", "--target", "0.001"); err == nil || !strings.Contains(err.Error(), "--target") {
		t.Errorf("a target of 0.1 %%: error %v, want one that names --target", err)
	}
}
