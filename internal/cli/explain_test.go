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
	"crane.io/crane/internal/recommendation/pricebook"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// explainReport decides and proves one workload: an app of ten days that asks for too much, and a sidecar of one day.
func explainReport(t *testing.T) *report {
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
			CPURequest: ptr(series.MilliCPU(1000)), CPULimit: ptr(series.MilliCPU(2000)), MemoryRequest: ptr(series.Bytes(1 << 30)), MemoryLimit: ptr(series.Bytes(1 << 30)),
		}},
		{Name: "proxy", Profile: profile(1)},
	}}
	it := item{workload: w, plan: resource.Decide(in), evidence: resource.CollectEvidence(in)}
	for _, c := range in.Containers {
		it.use = append(it.use, summarise(c.Profile, now.AddDate(0, 0, -14), now))
	}
	r := &report{
		policy: policy.Name, window: 14 * 24 * time.Hour, now: now, resources: []metrics.Resource{metrics.CPU, metrics.Memory},
		policyInFull: policy, items: []item{it},
	}
	book, err := pricebook.Load("")
	if err != nil {
		t.Fatal(err)
	}
	tariff, err := cost.NewTariff(book, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.price(&prices{book: book}, tariff, workload.Cluster{}.Placement())
	return r
}

func TestExplainPage(t *testing.T) {
	var out bytes.Buffer
	if err := renderExplain(Streams{Out: &out}, explainReport(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, "explain.txt", out.Bytes())
	for line := range strings.Lines(out.String()) {
		if len(line) > 111 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

// TestHTMLProves: the page has the replay and its chart, alone and with nothing from anywhere else.
func TestHTMLProves(t *testing.T) {
	r := explainReport(t)
	r.replays = true
	page := rendered(t, outputHTML, r)
	golden(t, "explain.html", []byte(page))
	want := []string{
		"saves 54.41 USD a month over 3 pods", "Each of 3 days from 2026-01-17", "<td>vpa</td>", "<td>krr-p95</td>", "<td>gocrane</td>", "<td>today</td>",
		"Days above limit", "Throttled", "Min/day over", "<polyline points=", "p99.5: slack", "Policy: the largest of the daily maxima of 14d", "Not replayed: there is no day yet",
	}
	for _, text := range want {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	if n := strings.Count(page, "<svg "); n != 2 {
		t.Errorf("%d charts, want one for CPU and one for memory of the app", n)
	}
	for _, asset := range []string{"src=", "href=", "url(", "@import", "<script", "http:", "//", "NaN", "ZgotmplZ"} {
		if strings.Contains(page, asset) {
			t.Errorf("the page has %q", asset)
		}
	}
	r.items[0].evidence, r.replays = nil, false
	if page = rendered(t, outputHTML, r); strings.Contains(page, "<svg ") || strings.Contains(page, "Not replayed") {
		t.Error("a page that was asked for without evidence speaks of it")
	}
}

// TestChartKeepsInside: whatever is replayed, every point lies within the chart, and no letter on another.
func TestChartKeepsInside(t *testing.T) {
	for name, replay := range map[string]rightsize.Replay{
		"ordinary": explainReport(t).items[0].evidence[0].CPU,
		"extreme": {Days: 1, Outcomes: []rightsize.Outcome{{Slack: -40, Violation: 1}, {Slack: -40, Violation: 1}, {Slack: 1}}, Curve: []rightsize.CurvePoint{
			{Quantile: 0.5, Slack: -1e9, Violation: 1}, {Quantile: 1, Slack: 0.99},
		}},
		"empty": {Days: 1, Outcomes: []rightsize.Outcome{{}, {}, {}, {}, {}, {}}, Curve: []rightsize.CurvePoint{{}}},
	} {
		c := htmlReplayOf(&replay, metrics.CPU).Chart
		for _, m := range append(slices.Clone(c.Dots), c.Marks...) {
			if !(m.X >= c.Left && m.X <= c.Right && m.Y >= c.Top && m.Y <= c.Bottom) {
				t.Errorf("%s: a point at %v, %v", name, m.X, m.Y)
			}
		}
		for i, a := range c.Marks {
			for _, b := range c.Marks[:i] {
				if math.Abs(a.X-b.X) < 9 && math.Abs(a.LabelY-b.LabelY) < 11 {
					t.Errorf("%s: %s lies on %s", name, a.Label, b.Label)
				}
			}
		}
		if n := len(c.XTicks); n < 2 || n > 8 {
			t.Errorf("%s: %d ticks", name, n)
		}
	}
}

func TestExplainFiles(t *testing.T) {
	dir := t.TempDir()
	writeSeries(t, dir, "web.csv", 10)
	writeSeries(t, dir, "webhook.csv", 10)
	code, out, errOut := crane(t, "recommend", "--from", dir, "--explain", "web")
	if code != exitOK || strings.Contains(out, "webhook") || strings.Contains(out, "no-request-today") {
		t.Errorf("exit %d, %s\n%s", code, errOut, out)
	}
	for _, want := range []string{"Series/web", "from use to number", "gocrane", "vpa", "krr-p95", "krr-p99", "other points", "p99.9"} {
		if !strings.Contains(out, want) {
			t.Errorf("the page lacks %q:\n%s", want, out)
		}
	}
	code, out, _ = crane(t, "recommend", "--from", dir, "--explain", "series/web", "-o", "json")
	if code != exitOK || strings.Contains(out, "webhook") || !strings.Contains(out, `"replay"`) {
		t.Errorf("exit %d\n%s", code, out)
	}
	code, _, errOut = crane(t, "recommend", "--from", dir, "--explain", "eb")
	if code != exitNothing || !strings.Contains(errOut, "alike are Series/web, Series/webhook") {
		t.Errorf("exit %d, %s", code, errOut)
	}
	for args, want := range map[string]string{"-o csv": "--output csv", "--only over": "as a whole"} {
		if code, _, errOut = crane(t, append([]string{"recommend", "--from", dir, "--explain", "web"}, strings.Fields(args)...)...); code != exitUsage || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit %d, %s", args, code, errOut)
		}
	}
}

func TestExplained(t *testing.T) {
	ref := func(namespace, kind, name string) workload.Workload {
		return workload.Workload{Ref: workload.Ref{Namespace: namespace, Kind: kind, Name: name}}
	}
	all := []workload.Workload{
		ref("shop", "Deployment", "web"), ref("shop", "StatefulSet", "web"), ref("test", "Deployment", "web"), ref("shop", "CronJob", "report"),
	}
	for wanted, want := range map[string]string{
		"report":                "shop/CronJob/report",
		"cj/report":             "shop/CronJob/report",
		"shop/report":           "shop/CronJob/report",
		"statefulset/web":       "shop/StatefulSet/web",
		"test/web":              "test/Deployment/web",
		"shop/deploy/web":       "shop/Deployment/web",
		"web":                   "several workloads are called that; say which: shop/Deployment/web, shop/StatefulSet/web, test/Deployment/web",
		"shop/web":              "shop/Deployment/web, shop/StatefulSet/web",
		"repo":                  "alike are shop/CronJob/report",
		"none":                  "no workload of 4 is called that",
		"a/b/c/web":             "no workload is called that",
		"web/":                  "no workload is called that",
		"shop/deployment/other": "no workload of 4",
	} {
		found, err := explained(wanted, all)
		if err == nil && (len(found) != 1 || found[0].String() != want) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %s", wanted, found, err, want)
		}
		if coded := (*exitError)(nil); err != nil && !errors.As(err, &coded) {
			t.Errorf("%s: no exit code of its own", wanted)
		}
	}
}
