// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"crane.io/crane/internal/kube/workload"
)

// viewed applies flags to a report and returns namespace/kind/name/container of what is left, in order.
func viewed(t *testing.T, r *report, args ...string) []string {
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
	v.apply(r)
	var out []string
	for _, it := range r.items {
		for _, c := range it.plan.Containers {
			out = append(out, strings.TrimPrefix(it.workload.Name, "a-workload-with-a-rather-")+"/"+c.Container)
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
		"--sort memory":                 "long-name/app web/proxy web/app", // web requests more in sum
		"--sort saving":                 "long-name/app web/proxy web/app",
		"--sort saving --only over":     "web/proxy",
		"--group-by kind --only over":   "web/proxy",
		"--workload web --workload .*e": "web/proxy web/app long-name/app",
	} {
		if got := strings.Join(viewed(t, sampleWithPrices(t), strings.Fields(args)...), " "); got != want {
			t.Errorf("%q leaves %q, want %q", args, got, want)
		}
	}
}

// TestOnlyKeepsSums: what a workload saves is what its containers that are left save.
func TestOnlyKeepsSums(t *testing.T) {
	r := sampleWithPrices(t)
	viewed(t, r, "--only", "over")
	if it := r.items[0]; it.saving.Memory != it.savings[0].Memory || it.saving.Hourly != it.savings[0].Hourly || it.saving.Memory != 3*64<<20 {
		t.Errorf("%+v", it.saving)
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
		code, _, errOut := crane(t, append([]string{"recommend", "--prometheus", "http://x"}, strings.Fields(c.args)...)...)
		if code != exitUsage || !strings.Contains(errOut, c.want) {
			t.Errorf("%s: exit %d, %q, want %q in it", c.args, code, errOut, c.want)
		}
	}
	if code, _, errOut := crane(t, "recommend", "--from", seriesDir(t), "--workload", "none"); code != exitNothing || !strings.Contains(errOut, "no workload matches") {
		t.Errorf("exit %d, %q", code, errOut)
	}
}

func TestKeep(t *testing.T) {
	v := &viewFlags{kinds: []string{"cj"}}
	all := []workload.Workload{{Ref: workload.Ref{Kind: "CronJob", Name: "a"}}, {Ref: workload.Ref{Kind: "Job", Name: "b"}}}
	if kept := v.keep(all); len(kept) != 1 || kept[0].Name != "a" || !slices.ContainsFunc(all, func(w workload.Workload) bool { return w.Name == "b" }) {
		t.Errorf("%v of %v", kept, all)
	}
}

func TestGroups(t *testing.T) {
	for by, want := range map[string]string{byWorkload: "shop/Deployment/web", byNamespace: "shop", byKind: "Deployment"} {
		r := sampleWithPrices(t)
		r.groupBy = by
		g := r.json().Groups
		if len(g) == 0 || g[0].Name != want {
			t.Fatalf("by %s: %+v", by, g)
		}
		if by == byWorkload {
			continue
		}
		if g[0].Workloads != 2 || g[0].Containers != 3 || g[0].WithoutNumber != 1 || g[0].Saving.Monthly != r.json().Totals.Saving.Monthly {
			t.Errorf("by %s: %+v", by, g)
		}
	}
}
