// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/text"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/recommendation/pricebook"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// sampleWithPrices is sampleReport with the default prices.
func sampleWithPrices(t *testing.T) *report {
	t.Helper()
	book, err := pricebook.Load("")
	if err != nil {
		t.Fatal(err)
	}
	tariff, err := cost.NewTariff(book, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := sampleReport()
	r.price(&prices{book: book}, tariff, workload.Cluster{}.Placement())
	return r
}

func rendered(t *testing.T, output string, r *report) string {
	t.Helper()
	var out, errOut bytes.Buffer
	if err := rendererOf(output)(Streams{Out: &out, Err: &errOut}, r); err != nil {
		t.Fatalf("%s: %v", output, err)
	}
	return out.String()
}

func TestOutputs(t *testing.T) {
	for _, output := range []string{outputYAML, outputCSV, outputMarkdown, outputHTML} {
		t.Run(output, func(t *testing.T) {
			golden(t, "recommend."+output, []byte(rendered(t, output, sampleWithPrices(t))))
		})
		t.Run(output+" by namespace", func(t *testing.T) {
			r := sampleWithPrices(t)
			r.groupBy = byNamespace
			golden(t, "recommend.namespaces."+output, []byte(rendered(t, output, r)))
		})
	}
}

// TestYAMLIsJSON: the two have one schema.
func TestYAMLIsJSON(t *testing.T) {
	var fromJSON, fromYAML any
	if err := json.Unmarshal([]byte(rendered(t, outputJSON, sampleWithPrices(t))), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(rendered(t, outputYAML, sampleWithPrices(t))), &fromYAML); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fromJSON, fromYAML); diff != "" {
		t.Error(diff)
	}
	if out := rendered(t, outputYAML, &report{}); !strings.HasSuffix(out, "\nworkloads: []\n") {
		t.Errorf("without workloads:\n%s", out)
	}
}

// hostile names a workload, a container and a reason by what would be markup somewhere.
func hostile() *report {
	r := sampleReport()
	const bad = `=1+1<script>alert("x")</script>|` + "`b`*c*"
	it := &r.items[0]
	it.workload.Name = bad
	it.workload.Containers[1].Name = bad
	it.plan.Containers[1].Container = bad
	it.plan.Description = bad
	it.plan.Containers[1].CPU.Steps[0].Detail = bad
	it.plan.Containers[1].CPU.Message = bad
	r.items = r.items[:1]
	return r
}

func TestHostileNames(t *testing.T) {
	for output, banned := range map[string][]string{
		outputHTML:     {"<script", `alert("`},
		outputMarkdown: {"<script", "`b`", " |`", "*c*"},
		outputCSV:      {",=1", "\n=1"},
	} {
		out := rendered(t, output, hostile())
		for _, b := range banned {
			if strings.Contains(strings.ReplaceAll(out, "\\*", ""), b) && strings.Contains(out, b) {
				t.Errorf("%s lets %q through:\n%s", output, b, out)
			}
		}
	}
	out := rendered(t, outputHTML, sampleWithPrices(t))
	for _, asset := range []string{"src=", "href=", "url(", "@import", "<script", "http:", "//"} {
		if strings.Contains(out, asset) {
			t.Errorf("the page needs something else: %q", asset)
		}
	}
}

// TestCSVIsRectangular: each line has a cell for each title, whatever is known.
func TestCSVIsRectangular(t *testing.T) {
	files := sampleReport()
	files.resources = []metrics.Resource{metrics.CPU}
	grouped := sampleWithPrices(t)
	grouped.groupBy = byWorkload
	for name, r := range map[string]*report{
		"priced": sampleWithPrices(t), "without prices": sampleReport(), "files": files, "groups": grouped, "hostile": hostile(), "empty": {},
	} {
		lines, err := csv.NewReader(strings.NewReader(rendered(t, outputCSV, r))).ReadAll()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(lines) == 0 || lines[0][0] != map[bool]string{true: byWorkload, false: "namespace"}[name == "groups"] {
			t.Errorf("%s: %v", name, lines)
		}
	}
}

// TestTableFits: no line is wider than the terminal as long as there is room for anything at all.
func TestTableFits(t *testing.T) {
	for _, columns := range []int{80, 90, 100, 120, 132, 160, 200} {
		r := sampleWithPrices(t)
		var b bytes.Buffer
		if err := drawTable(&b, r, columns, painter(true)); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if width := text.StringWidthWithoutEscSequences(strings.TrimSuffix(line, "\n")); width > columns {
				t.Errorf("%d columns in a terminal of %d: %q", width, columns, line)
			}
		}
	}
}

// TestNodeGroups: what a DaemonSet needs on unlike nodes is in every form that has room for it.
func TestNodeGroups(t *testing.T) {
	r := sampleReport()
	c := &r.items[0].plan.Containers[0]
	c.NodeGroups = []rightsize.NodeGroupSize{
		{Group: "pool=big", Pods: 4, CPU: c.CPU, Memory: c.Memory, Target: rightsize.Resources{CPURequest: ptr(series.MilliCPU(100)), MemoryRequest: ptr(series.Bytes(64 << 20))}},
		{Group: "pool=small", Pods: 1, CPU: c.CPU, Memory: rightsize.Sizing{Status: rightsize.Learning, Message: "learning, 1 of 7 days"}, Target: rightsize.Resources{CPURequest: ptr(series.MilliCPU(30))}},
	}
	var out jsonReport
	if err := json.Unmarshal([]byte(rendered(t, outputJSON, r)), &out); err != nil {
		t.Fatal(err)
	}
	groups := out.Workloads[0].Containers[0].NodeGroups
	if len(groups) != 2 || groups[1].CPU.Recommended.Request.Quantity != "30m" || groups[1].Memory.Recommended != nil || groups[1].Memory.Message == "" {
		t.Errorf("%+v", groups)
	}
	var page bytes.Buffer
	if err := renderExplain(Streams{Out: &page}, r); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{page.String(), rendered(t, outputHTML, r)} {
		for _, want := range []string{"pool=big (4 pods): 100m", "pool=small (1 pod): 30m", "pool=small (1 pod): learning, 1 of 7 days"} {
			if !strings.Contains(text, want) {
				t.Errorf("lacks %q:\n%s", want, text)
			}
		}
	}
}

// TestStackedTable: on a narrow terminal no name is broken and each container is below its workload.
func TestStackedTable(t *testing.T) {
	r := sampleWithPrices(t)
	r.items[0].plan.Containers[0].Container = "a-container-whose-name-has-no-room-beside-its-numbers"
	grouped := *r
	grouped.groupBy = byWorkload
	if out := drawSheet(&grouped, 80, painter(false)); !strings.Contains(out, "\nshop\n  Deployment/web ") || strings.Contains(out, "WORKLOADS") || strings.Count(out, "\nshop\n") != 1 {
		t.Errorf("groups:\n%s", out)
	}
	out := drawSheet(r, 80, painter(false))
	want := []string{
		"\nshop Deployment/web\n  a-container-whose-name-has-no-room-beside-its-numbers\n", "100m     100m      0%", "\n  app ", "-4.64",
		"\n      cpu: throttled, its need is not known\n", "\nshop Deployment/a-workload-with-a-rather-long-name\n", "\nTOTAL ",
	}
	at := 0
	for _, text := range want {
		if i := strings.Index(out[at:], text); i < 0 {
			t.Errorf("lacks %q after %d letters:\n%s", text, at, out)
		} else if text[0] == '\n' {
			at += i
		}
	}
	if strings.Contains(drawSheet(r, 200, painter(false)), "\n  app") {
		t.Error("a wide terminal has the stacked table")
	}
}

func TestColours(t *testing.T) {
	var plain, painted bytes.Buffer
	if err := drawTable(&plain, sampleReport(), 0, painter(false)); err != nil {
		t.Fatal(err)
	}
	if err := drawTable(&painted, sampleReport(), 0, painter(true)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(painted.String(), colourLess+"-50%"+colourReset) ||
		!strings.Contains(painted.String(), colourMore+"+50%"+colourReset) {
		t.Errorf("plain:\n%q\npainted:\n%q", plain.String(), painted.String())
	}
	if text.StripEscape(painted.String()) != plain.String() {
		t.Errorf("colours change the text:\n%s\n%s", plain.String(), text.StripEscape(painted.String()))
	}
	if paintFor(&plain) {
		t.Error("a buffer is coloured")
	}
}
