// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/recommendation/pricebook"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with a file of testdata. The style sheet of a page is compared with that of the template instead.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()

	path := filepath.Join("testdata", name)
	if filepath.Ext(name) == ".html" {
		page, sheet := cutStyle(t, got)
		template, err := os.ReadFile("output.html.tmpl")
		if err != nil {
			t.Fatal(err)
		}

		if _, want := cutStyle(t, template); sheet != want {
			t.Errorf("%s has another style sheet than the template:\n%s", name, cmp.Diff(want, sheet))
		}
		got = page
	}

	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("reading %s: %v, want a golden file (go test ./internal/cli -update writes it)", path, err)
	}

	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// cutStyle splits a page into the page without its style sheet and the sheet.
func cutStyle(t *testing.T, page []byte) (rest []byte, sheet string) {
	t.Helper()

	const begin, end = "<style>\n", "</style>\n"
	before, tail, found := bytes.Cut(page, []byte(begin))
	style, after, ended := bytes.Cut(tail, []byte(end))
	if !found || !ended || len(style) == 0 {
		t.Fatal("the page has no style sheet, want one")
	}

	return slices.Concat(before, []byte(begin+end), after), string(style)
}

// execute runs the command line without the exit code of Main and returns its output and error.
func execute(t *testing.T, args ...string) (out, errOut string, err error) {
	t.Helper()

	var stdout, stderr bytes.Buffer
	cmd := NewCommand(Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr}, "crane")
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())

	return stdout.String(), stderr.String(), err
}

// setDefaultPrices prices the report with the default price book.
func setDefaultPrices(t *testing.T, r *report) {
	t.Helper()

	book, err := pricebook.Load("")
	if err != nil {
		t.Fatal(err)
	}

	tariff, err := cost.NewTariff(book, nil)
	if err != nil {
		t.Fatal(err)
	}

	r.Price(&sizereport.PriceInfo{Book: book}, tariff, workload.Cluster{}.Placement(), nil)
}

// fixtureReport returns a report with a changed, an unchanged and a missing request, and with a container without
// enough history.
func fixtureReport() *report {
	ready := func(message string, flags ...rightsize.Flag) rightsize.Sizing {
		return rightsize.Sizing{
			Status: rightsize.Ready, Message: message, Confidence: 1, Days: 14, Estimate: 0.2, Flags: flags,
			Steps: []rightsize.Step{{Code: rightsize.StepEstimate, Unit: rightsize.Cores, To: 0.2, Detail: message}},
		}
	}

	web := workload.Workload{
		Ref:        workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		Replicas:   3,
		Containers: []workload.Container{{Name: "proxy", Role: workload.Sidecar}, {Name: "app", Role: workload.App}},
	}

	young := web
	young.Name = "a-workload-with-a-rather-long-name"
	learning := rightsize.Sizing{Status: rightsize.Learning, Message: "learning, 3 of 7 days", Days: 3}

	return &report{Report: &sizereport.Report{
		PolicyName: "default", Window: 14 * 24 * time.Hour, Now: time.Unix(1_700_000_000, 0),
		Resources: []metrics.UsageKind{metrics.CPU, metrics.Memory},
		Items: []sizereport.Item{
			{
				Workload: web, Usage: []sizereport.ContainerUsage{{}, {CPU: sizereport.UsageSummary{Samples: 10, Mean: 0.1, P50: 0.1, P95: 0.2, P99: 0.2, Max: 0.3}}},
				Plan: resource.Plan{State: recommend.Ready, Action: recommend.Patch, Description: "The requests should change.", Containers: []rightsize.Recommendation{
					{
						Container: "proxy", CPU: ready("p99"), Memory: ready("max"),
						Current: rightsize.Resources{CPURequest: new(units.MilliCPU(100)), MemoryRequest: new(units.Bytes(128 << 20))},
						Target:  rightsize.Resources{CPURequest: new(units.MilliCPU(100)), MemoryRequest: new(units.Bytes(64 << 20))},
					},
					{
						Container: "app", CPU: ready("p99", rightsize.Flag{Code: rightsize.FlagThrottled, Detail: "at its limit"}), Memory: ready("max"),
						Current: rightsize.Resources{CPULimit: new(units.MilliCPU(2000)), MemoryRequest: new(units.Bytes(1 << 30))},
						Target:  rightsize.Resources{CPURequest: new(units.MilliCPU(12345)), CPULimit: new(units.MilliCPU(20000)), MemoryRequest: new(units.Bytes(1536 << 20))},
					},
				}},
			},
			{
				Workload: young, Usage: []sizereport.ContainerUsage{{}},
				Plan: resource.Plan{State: recommend.Learning, Incomplete: true, Description: "No number yet.", Containers: []rightsize.Recommendation{
					{Container: "app", CPU: learning, Memory: learning, Current: rightsize.Resources{CPURequest: new(units.MilliCPU(1000))}},
				}},
			},
		},
	}}
}

func TestRenderers(t *testing.T) {
	for name, render := range map[string]func(*bytes.Buffer, *report) error{
		"recommend.table": func(b *bytes.Buffer, r *report) error { return renderTable(b, r) },
		"recommend.json":  func(b *bytes.Buffer, r *report) error { return renderJSON(b, r) },
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := render(&b, fixtureReport()); err != nil {
				t.Fatal(err)
			}

			golden(t, name, b.Bytes())
		})
	}
}

func TestEmptyReport(t *testing.T) {
	empty := &report{Report: &sizereport.Report{PolicyName: "default", Resources: []metrics.UsageKind{metrics.CPU, metrics.Memory}}}
	var b bytes.Buffer
	if err := renderJSON(&b, empty); err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(b.String(), `"workloads": []`) {
		t.Errorf("the JSON of an empty report lacks workloads, want an empty list:\n%s", b.String())
	}
	if empty.hasNumbers() || !strings.Contains(empty.emptyMessage(), "no workload") {
		t.Errorf("message of an empty report = %q, want that no workload was found", empty.emptyMessage())
	}
}

func TestNoteWidth(t *testing.T) {
	widths := []int{10, 20, 4}
	for total, want := range map[int]int{0: maxNoteWidth, 40: minNoteWidth, 120: 120 - 10 - 20 - 4 - 1} {
		if got := noteWidth(total, widths); got != want {
			t.Errorf("width %d leaves %d, want %d", total, got, want)
		}
	}
}

func TestPercentText(t *testing.T) {
	for _, c := range []struct {
		now, target float64
		want        string
	}{{100, 50, "-50%"}, {100, 100.2, "0%"}, {100, 225, "+125%"}, {0, 10, "-"}, {100, 99.6, "0%"}} {
		if got := percentText(c.now, c.target); got != c.want {
			t.Errorf("%v to %v is %s, want %s", c.now, c.target, got, c.want)
		}
	}
}
