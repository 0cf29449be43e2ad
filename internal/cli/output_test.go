// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/text"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// pricedFixtureReport returns fixtureReport with the default prices.
func pricedFixtureReport(t *testing.T) *report {
	t.Helper()

	r := fixtureReport()
	setDefaultPrices(t, r)
	return r
}

func render(t *testing.T, output string, r *report) string {
	t.Helper()

	var out, errOut bytes.Buffer
	if err := rendererFor(output)(Streams{Out: &out, Err: &errOut}, r); err != nil {
		t.Fatalf("rendering %s: %v", output, err)
	}

	return out.String()
}

func TestOutputs(t *testing.T) {
	for _, output := range []string{outputYAML, outputCSV, outputMarkdown, outputHTML} {
		t.Run(output, func(t *testing.T) {
			golden(t, "recommend."+output, []byte(render(t, output, pricedFixtureReport(t))))
		})
		t.Run(output+" by namespace", func(t *testing.T) {
			r := pricedFixtureReport(t)
			r.groupBy = byNamespace
			golden(t, "recommend.namespaces."+output, []byte(render(t, output, r)))
		})
	}
}

// TestYAMLMatchesJSON checks that both formats have the same schema.
func TestYAMLMatchesJSON(t *testing.T) {
	var fromJSON, fromYAML any
	if err := json.Unmarshal([]byte(render(t, outputJSON, pricedFixtureReport(t))), &fromJSON); err != nil {
		t.Fatal(err)
	}

	if err := yaml.Unmarshal([]byte(render(t, outputYAML, pricedFixtureReport(t))), &fromYAML); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(fromJSON, fromYAML); diff != "" {
		t.Errorf("the YAML differs from the JSON, want the same fields:\n%s", diff)
	}
	if out := render(t, outputYAML, &report{Report: &sizereport.Report{}}); !strings.HasSuffix(out, "\nworkloads: []\n") {
		t.Errorf("YAML without workloads lacks the empty list, want it last:\n%s", out)
	}
}

// markupFixtureReport returns a report whose names and messages contain markup.
func markupFixtureReport() *report {
	r := fixtureReport()
	const bad = `=1+1<script>alert("x")</script>|` + "`b`*c*"
	it := &r.Items[0]
	it.Workload.Name = bad
	it.Workload.Containers[1].Name = bad
	it.Plan.Containers[1].Container = bad
	it.Plan.Description = bad
	it.Plan.Containers[1].CPU.Steps[0].Detail = bad
	it.Plan.Containers[1].CPU.Message = bad
	r.Items = r.Items[:1]

	return r
}

func TestMarkupIsEscaped(t *testing.T) {
	for output, banned := range map[string][]string{
		outputHTML:     {"<script>alert", `alert("`},
		outputMarkdown: {"<script", "`b`", " |`", "*c*"},
		outputCSV:      {",=1", "\n=1"},
	} {
		out := render(t, output, markupFixtureReport())
		for _, b := range banned {
			if strings.Contains(strings.ReplaceAll(out, "\\*", ""), b) && strings.Contains(out, b) {
				t.Errorf("%s contains %q, want it escaped:\n%s", output, b, out)
			}
		}
	}

	out := render(t, outputHTML, pricedFixtureReport(t))
	checkSelfContained(t, out)
}

// checkSelfContained checks that a page refers to nothing outside of it, that its links have targets, and that its script is the one that its
// Content-Security-Policy allows.
func checkSelfContained(t *testing.T, page string) {
	t.Helper()

	for _, asset := range []string{"src=", "url(", "@import", "http:", "//", "NaN", "ZgotmplZ"} {
		if strings.Contains(page, asset) {
			t.Errorf("the page contains %q, want a page that loads nothing", asset)
		}
	}

	for _, link := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if id, local := strings.CutPrefix(link[1], "#"); !local || !strings.Contains(page, `id="`+id+`"`) {
			t.Errorf("the link %q has no target, want one in the page", link[1])
		}
	}

	scripts := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllStringSubmatch(page, -1)
	if len(scripts) != 1 {
		t.Fatalf("%d scripts in the page, want 1", len(scripts))
	}

	hash := sha256.Sum256([]byte(scripts[0][1]))
	if allowed := "script-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"; !strings.Contains(html.UnescapeString(page), allowed) {
		t.Errorf("the policy of the page lacks the hash of the script, want %s", allowed)
	}
}

// TestHTMLNavigation: rows are in the order of savings, each row links to its explanation, and the search box is hidden without scripts.
func TestHTMLNavigation(t *testing.T) {
	view := viewFlags{}
	if err := view.complete(outputHTML); err != nil {
		t.Fatal(err)
	}

	r := pricedFixtureReport(t)
	r = view.apply(r.Report)

	for i := 1; i < len(r.Items); i++ {
		if a, b := r.Items[i-1].Saving.Hourly.Total().PerHour(), r.Items[i].Saving.Hourly.Total().PerHour(); a < b {
			t.Errorf("row %d saves %g, the next one %g, want the largest saving first", i, a, b)
		}
	}

	page := render(t, outputHTML, r)
	var rows int
	for i, it := range r.Items {
		id := fmt.Sprintf("workload-%d", i+1)
		rows += len(it.Plan.Containers)

		if n := strings.Count(page, `<a href="#`+id+`">`); n != len(it.Plan.Containers) {
			t.Errorf("%s: %d rows link to its explanation, want %d", it.Workload.Ref, n, len(it.Plan.Containers))
		}
		if want := fmt.Sprintf(`id="%s"`, id); !regexp.MustCompile(want + `[^>]*>\s*<summary>` + regexp.QuoteMeta(html.EscapeString(it.Workload.Ref.String()))).MatchString(page) {
			t.Errorf("no explanation of %s with %s", it.Workload.Ref, want)
		}
	}

	if rows < 3 || !strings.Contains(page, `<p class="search" hidden>`) {
		t.Errorf("%d rows, want 3 or more and a search box that is hidden without scripts", rows)
	}
	if view = (viewFlags{}); view.complete(outputTable) != nil || view.sortBy != sortName {
		t.Errorf("the table is sorted by %s, want %s", view.sortBy, sortName)
	}
}

// TestCSVIsRectangular checks that each row has a cell for each title.
func TestCSVIsRectangular(t *testing.T) {
	files := fixtureReport()
	files.Resources = []metrics.UsageKind{metrics.CPU}
	grouped := pricedFixtureReport(t)

	grouped.groupBy = byWorkload
	for name, r := range map[string]*report{
		"priced": pricedFixtureReport(t), "without prices": fixtureReport(), "files": files, "groups": grouped, "markup": markupFixtureReport(), "empty": {Report: &sizereport.Report{}},
	} {
		lines, err := csv.NewReader(strings.NewReader(render(t, outputCSV, r))).ReadAll()
		if err != nil {
			t.Errorf("CSV of %s cannot be read: %v, want rows", name, err)
		}
		if len(lines) == 0 || lines[0][0] != map[bool]string{true: byWorkload, false: "namespace"}[name == "groups"] {
			t.Errorf("CSV of %s = %v, want the header of its columns", name, lines)
		}
	}
}

// TestTableFitsTerminal checks that no line exceeds the width of the terminal.
func TestTableFitsTerminal(t *testing.T) {
	for _, columns := range []int{80, 90, 100, 120, 132, 160, 200} {
		r := pricedFixtureReport(t)
		var b bytes.Buffer
		if err := writeTable(&b, r, columns, painter(true)); err != nil {
			t.Fatal(err)
		}

		for line := range strings.Lines(b.String()) {
			if width := text.StringWidthWithoutEscSequences(strings.TrimSuffix(line, "\n")); width > columns {
				t.Errorf("a line of %d columns in a terminal of %d, want it to fit: %q", width, columns, line)
			}
		}
	}
}

// TestNodeGroups checks that JSON, text and HTML contain the recommendations per node group.
func TestNodeGroups(t *testing.T) {
	r := fixtureReport()
	c := &r.Items[0].Plan.Containers[0]
	c.NodeGroups = []rightsize.NodeGroupSize{
		{Group: "pool=big", Pods: 4, CPU: c.CPU, Memory: c.Memory, Target: rightsize.Resources{CPURequest: new(units.MilliCPU(100)), MemoryRequest: new(units.Bytes(64 << 20))}},
		{Group: "pool=small", Pods: 1, CPU: c.CPU, Memory: rightsize.Sizing{Status: rightsize.Learning, Message: "learning, 1 of 7 days"}, Target: rightsize.Resources{CPURequest: new(units.MilliCPU(30))}},
	}

	var out jsonReport
	if err := json.Unmarshal([]byte(render(t, outputJSON, r)), &out); err != nil {
		t.Fatal(err)
	}

	groups := out.Workloads[0].Containers[0].NodeGroups
	if len(groups) != 2 || groups[1].CPU.Recommended.Request.Quantity != "30m" || groups[1].Memory.Recommended != nil || groups[1].Memory.Message == "" {
		t.Errorf("node groups = %+v, want 2, the second with 30m of CPU and a message on memory", groups)
	}

	var page bytes.Buffer
	if err := renderExplain(Streams{Out: &page}, r); err != nil {
		t.Fatal(err)
	}

	for _, text := range []string{page.String(), render(t, outputHTML, r)} {
		for _, want := range []string{"pool=big (4 pods): 100m", "pool=small (1 pod): 30m", "pool=small (1 pod): learning, 1 of 7 days"} {
			if !strings.Contains(text, want) {
				t.Errorf("lacks %q:\n%s", want, text)
			}
		}
	}
}

// TestNodeGroupSavings checks that the recommendation of a node group is priced with the nodes of that group.
func TestNodeGroupSavings(t *testing.T) {
	r := fixtureReport()
	web := &r.Items[0]
	web.Workload.Kind = "DaemonSet"
	c := &web.Plan.Containers[0]
	c.Current.CPURequest = new(units.MilliCPU(1000))
	c.Current.MemoryRequest = new(units.Bytes(1 << 30))

	target := rightsize.Resources{CPURequest: new(units.MilliCPU(500)), MemoryRequest: new(units.Bytes(1 << 30))}
	c.CPU.Status, c.Memory.Status = rightsize.Ready, rightsize.Ready
	c.NodeGroups = []rightsize.NodeGroupSize{
		{Group: "pool=cheap", Pods: 2, CPU: c.CPU, Memory: c.Memory, Target: target},
		{Group: "pool=dear", Pods: 1, CPU: c.CPU, Memory: c.Memory, Target: target},
	}

	book, err := cost.ParsePriceBook([]byte(`{"currency":"USD","source":"s","date":"2026-01-01","default":{"prices":{"cpu":0.01,"memory":0.001}},
		"groups":[{"name":"dear","selector":{"matchLabels":{"pool":"dear"}},"prices":{"cpu":0.1,"memory":0.01}}]}`))
	if err != nil {
		t.Fatal(err)
	}

	nodes := []cost.Node{}
	placed := workload.Cluster{}
	groupOf := map[string]string{}
	for name, pool := range map[string]string{"a": "cheap", "b": "cheap", "c": "dear"} {
		nodes = append(nodes, cost.Node{Name: name, Labels: map[string]string{"pool": pool}, Size: cost.Amounts{CPU: 4000, Memory: 8 << 30}})
		placed.Pods = append(placed.Pods, workload.Pod{Name: name, Node: name, Owner: web.Workload.Ref})
		groupOf[name] = "pool=" + pool
	}

	tariff, err := cost.NewTariff(book, nodes)
	if err != nil {
		t.Fatal(err)
	}

	r.Price(&sizereport.PriceInfo{Book: book}, tariff, placed.Placement(), groupOf)
	var out jsonReport
	if err := json.Unmarshal([]byte(render(t, outputJSON, r)), &out); err != nil {
		t.Fatal(err)
	}

	// Half a core less: 2 pods at 0.01 USD an hour, 1 pod at 0.1 USD.
	for i, want := range []float64{0.01, 0.05} {
		if got := out.Workloads[0].Containers[0].NodeGroups[i].Saving; got == nil || math.Abs(got.Hourly-want) > 1e-9 {
			t.Errorf("group %d: saving %+v, want %g an hour", i, got, want)
		}
	}

	if page := render(t, outputHTML, r); !strings.Contains(page, "pool=dear (1 pod): 500m, saves 36.50 USD a month") {
		t.Errorf("the page lacks the price per node group, want it:\n%s", page)
	}
}

// TestStackedTable checks that a narrow table does not wrap names and prints containers below their workload.
func TestStackedTable(t *testing.T) {
	r := pricedFixtureReport(t)
	r.Items[0].Plan.Containers[0].Container = "a-container-whose-name-has-no-room-beside-its-numbers"

	grouped := *r
	grouped.groupBy = byWorkload
	if out := formatTable(&grouped, 80, painter(false)); !strings.Contains(out, "\nshop\n  Deployment/web ") || strings.Contains(out, "WORKLOADS") || strings.Count(out, "\nshop\n") != 1 {
		t.Errorf("stacked table of groups lacks shop with its workload, want it once:\n%s", out)
	}

	out := formatTable(r, 80, painter(false))
	want := []string{
		"\nshop Deployment/web\n  a-container-whose-name-has-no-room-beside-its-numbers\n", "100m     100m      0%", "\n  app ", "-4.64",
		"\n      cpu: throttled, demand unknown\n", "\nshop Deployment/a-workload-with-a-rather-long-name\n", "\nTOTAL ",
	}

	at := 0
	for _, text := range want {
		if i := strings.Index(out[at:], text); i < 0 {
			t.Errorf("the output lacks %q after %d letters, want it there:\n%s", text, at, out)
		} else if text[0] == '\n' {
			at += i
		}
	}

	if strings.Contains(formatTable(r, 200, painter(false)), "\n  app") {
		t.Error("the stacked table is printed on a wide terminal, want the plain one")
	}
}

func TestColors(t *testing.T) {
	var plain, painted bytes.Buffer
	if err := writeTable(&plain, fixtureReport(), 0, painter(false)); err != nil {
		t.Fatal(err)
	}

	if err := writeTable(&painted, fixtureReport(), 0, painter(true)); err != nil {
		t.Fatal(err)
	}

	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(painted.String(), colorLess+"-50%"+termtext.Reset) ||
		!strings.Contains(painted.String(), colorMore+"+50%"+termtext.Reset) {
		t.Errorf("plain:\n%q\npainted:\n%q, want more and less in their colors", plain.String(), painted.String())
	}
	if text.StripEscape(painted.String()) != plain.String() {
		t.Errorf("colors change the text, want the same:\n%s\n%s", plain.String(), text.StripEscape(painted.String()))
	}
	if newPainter(&plain) {
		t.Error("colors are enabled for a buffer, want none")
	}
}
