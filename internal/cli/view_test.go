// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// applyView applies flags to a report and returns workload/container of the remaining items in order.
func applyView(t *testing.T, r *report, args ...string) []string {
	t.Helper()

	v := &viewFlags{}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	v.addFlags(fs)

	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}

	if err := v.complete(outputTable); err != nil {
		t.Fatal(err)
	}

	*r = *v.apply(r.Report)
	var out []string
	for _, it := range r.Items {
		for _, c := range it.Plan.Containers {
			out = append(out, strings.TrimPrefix(it.Workload.Name, "a-workload-with-a-rather-")+"/"+c.Container)
		}
	}

	return out
}

func TestView(t *testing.T) {
	for args, want := range map[string]string{
		"":                              "web/proxy web/app long-name/app",
		"--workload web":                "web/proxy web/app",
		"--workload we":                 "",
		"--workload w.b|x":              "web/proxy web/app",
		"--workload .*name":             "long-name/app",
		"--workload web --kind sts":     "",
		"--kind deploy":                 "web/proxy web/app long-name/app",
		"--kind DEPLOYMENTS,Job":        "web/proxy web/app long-name/app",
		"--only over":                   "web/proxy",
		"--only under":                  "web/app",
		"--only over,under":             "web/proxy web/app",
		"--only missing":                "web/app long-name/app",
		"--only learning":               "long-name/app",
		"--sort change":                 "web/proxy web/app long-name/app",
		"--sort cpu":                    "web/proxy web/app long-name/app",
		"--sort memory":                 "long-name/app web/proxy web/app", // the total request of web increases
		"--sort saving":                 "long-name/app web/proxy web/app",
		"--sort saving --only over":     "web/proxy",
		"--group-by kind --only over":   "web/proxy",
		"--workload web --workload .*e": "web/proxy web/app long-name/app",
	} {
		if got := strings.Join(applyView(t, pricedFixtureReport(t), strings.Fields(args)...), " "); got != want {
			t.Errorf("%q selects %q, want %q", args, got, want)
		}
	}
}

// TestOnlyUpdatesSums checks that the saving of a workload is the sum of its remaining containers.
func TestOnlyUpdatesSums(t *testing.T) {
	r := pricedFixtureReport(t)
	applyView(t, r, "--only", "over")

	if it := r.Items[0]; it.Saving.Memory != it.Savings[0].Memory || it.Saving.Hourly != it.Savings[0].Hourly || it.Saving.Memory != 3*64<<20 {
		t.Errorf("saving of the selected container = %+v, want that of its memory alone", it.Saving)
	}
}

func TestViewErrors(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--workload (", `--workload "("`},
		{"--workload=", "want a name"},
		{"--sort size", "want one of name, saving"},
		{"--only big", "want one of over, under"},
		{"--group-by node", "want one of workload, namespace, kind"},
	} {
		code, _, errOut := runCrane(t, append([]string{"recommend", "--prometheus", "http://x"}, strings.Fields(c.args)...)...)
		if code != exitUsage || !strings.Contains(errOut, c.want) {
			t.Errorf("%s: exit %d, %q, want %q in it", c.args, code, errOut, c.want)
		}
	}

	if code, _, errOut := runCrane(t, "recommend", "--from", fixtureSeriesDir(t), "--workload", "none"); code != exitNoResult || !strings.Contains(errOut, "no workload matches") {
		t.Errorf("recommend --workload none: exit %d, %q, want %d and that nothing matches", code, errOut, exitNoResult)
	}
}

func TestFilterWorkloads(t *testing.T) {
	v := &viewFlags{kinds: []string{"cj"}}
	all := []workload.Workload{{Ref: workload.Ref{Kind: "CronJob", Name: "a"}}, {Ref: workload.Ref{Kind: "Job", Name: "b"}}}
	if kept := v.filterWorkloads(all); len(kept) != 1 || kept[0].Name != "a" || !slices.ContainsFunc(all, func(w workload.Workload) bool { return w.Name == "b" }) {
		t.Errorf("filterWorkloads(%v) = %v, want workload a and an unchanged input", all, kept)
	}

	for want, filters := range map[string]*viewFlags{
		": none of 2 workloads is a cronjb; did you mean CronJob?":        {kinds: []string{"cronjb"}},
		": none of 2 workloads is a Deployment":                           {kinds: []string{"Deployment"}},
		": none of 2 workloads is called chekout; did you mean checkout?": {names: []nameFilter{{text: "chekout"}}},
		"": {kinds: []string{"Job"}, names: []nameFilter{{text: "checkout"}}},
	} {
		all := []workload.Workload{{Ref: workload.Ref{Kind: "CronJob", Name: "checkout"}}, {Ref: workload.Ref{Kind: "Job", Name: "b"}}}
		if kept := filters.filterWorkloads(all); len(kept) != 0 || filters.hint != want {
			t.Errorf("%v, hint %q, want %q", kept, filters.hint, want)
		}
	}
}

func TestGroups(t *testing.T) {
	for by, want := range map[string]string{byWorkload: "shop/Deployment/web", byNamespace: "shop", byKind: "Deployment"} {
		r := pricedFixtureReport(t)
		r.groupBy = by
		g := r.json().Groups
		if len(g) == 0 || g[0].Name != want {
			t.Fatalf("groups by %s = %+v, want %s first", by, g, want)
		}

		if by == byWorkload {
			continue
		}

		if g[0].Workloads != 2 || g[0].Containers != 3 || g[0].WithoutNumber != 1 || g[0].Saving.Monthly != r.json().Totals.Saving.Monthly {
			t.Errorf("group by %s = %+v, want 2 workloads, 3 containers, 1 of them without a number, and the total saving", by, g)
		}
	}
}

// TestGroupsSortBySum checks that groups are sorted by their sums and not by their best members, and that the totals of requests differ by
// the saving, jobs included.
func TestGroupsSortBySum(t *testing.T) {
	r := pricedFixtureReport(t)
	web := r.Items[0]
	add := func(namespace, kind string, after units.MilliCPU, meanPods float64) {
		it := web
		it.Workload.Namespace = namespace
		it.Workload.Kind = kind
		c := web.Plan.Containers[0]
		c.Current.CPURequest = new(units.MilliCPU(1000))
		c.Target.CPURequest = new(after)

		it.Plan.Containers = []rightsize.Recommendation{c}
		it.Plan.MeanPods = meanPods
		it.Usage = it.Usage[:1]
		it.Saving = cost.Saving{}
		it.Savings = nil
		it.GroupSavings = nil
		r.Items = append(r.Items, it)
	}

	r.Items = nil
	add("one-large", "Deployment", 400, 0)
	add("two-small", "Deployment", 600, 0)
	add("two-small", "CronJob", 600, 2.5)

	book := fixturePriceBook(t)
	tariff, err := cost.NewTariff(book, nil)
	if err != nil {
		t.Fatal(err)
	}

	r.Price(&sizereport.PriceInfo{Book: book}, tariff, workload.Cluster{}.Placement(), nil)
	r = (&viewFlags{sortBy: sortSaving, groupBy: byNamespace}).apply(r.Report)

	groups := r.json().Groups
	if len(groups) != 2 || groups[0].Name != "two-small" {
		t.Fatalf("groups = %+v, want two-small first", groups)
	}

	for _, g := range groups {
		if saved := g.CPU.Current - g.CPU.Recommended; math.Abs(saved-g.Saving.CPU) > 1e-9 {
			t.Errorf("%s: the totals differ by %g cores, want the saving %g", g.Name, saved, g.Saving.CPU)
		}
	}

	if total := r.json().Totals; math.Abs(total.CPU.Current-total.CPU.Recommended-total.Saving.CPU) > 1e-9 || math.Abs(total.Saving.CPU-(3*0.6+3*0.4+2.5*0.4)) > 1e-9 {
		t.Errorf("totals = %+v, want the sum of the groups", total)
	}
}
