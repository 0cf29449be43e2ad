// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

func TestParseMatchers(t *testing.T) {
	for in, want := range map[string]string{
		"":                           `{}`,
		"cluster=eu":                 `{cluster="eu"}`,
		" a=b , c = d ":              `{a="b",c="d"}`,
		"a=b=c":                      `{a="b=c"}`,
		"a=%s":                       `{a="%s"}`,
		`a=x"y{}\z`:                  `{a="x\"y{}\\z"}`,
		`a="x,y\"z",b=2`:             `{a="x,y\"z",b="2"}`,
		`a!=b,c=~"d.*|e",f!~g`:       `{a!="b",c=~"d.*|e",f!~"g"}`,
		"a=":                         `{a=""}`,
		"a=Grüße":                    `{a="Grüße"}`,
		`a="~b"`:                     `{a="~b"}`,
		"exported_namespace=x_1,b=*": `{exported_namespace="x_1",b="*"}`,
	} {
		got, err := ParseMatchers(in)
		if err != nil {
			t.Errorf("ParseMatchers(%q): error %v, want none", in, err)
		}
		if text := selector("", got...); text != want {
			t.Errorf("selector of %q is %s, want %s", in, text, want)
		}
	}

	for in, want := range map[string]string{
		"cluster": "must be name=value", "=x": "label name", "a-b=c": "label name", `a="b`: "without its end", `a="b"c=d`: "expected a comma",
		"a!b": "operator", "a=~(": "missing closing", `a="\q"`: "without its end", "9a=b": "label name", "a=b,,c=d": "label name",
	} {
		if got, err := ParseMatchers(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want an error with %q", in, got, err, want)
		}
	}
}

func FuzzParseMatchers(f *testing.F) {
	for _, seed := range []string{"a=b", `a="x,y",b!=c`, `a=~"x|y"`, "a=b=c,"} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParseMatchers(in)
		if err != nil {
			return
		}

		text := strings.Trim(selector("", got...), "{}")
		again, err := ParseMatchers(text)

		if text == "" {
			return
		}

		if err != nil || !slices.Equal(got, again) {
			t.Errorf("ParseMatchers(%q) prints as %s, parsed again %v, %v, want the same", in, text, again, err)
		}
	})
}

func TestOwnerFromName(t *testing.T) {
	for pod, want := range map[string]string{
		"web-5d4f8c7b9d-x8k2p":        "Deployment/web",
		"web-api-v2-5d4f8c7b9d-x8k2p": "Deployment/web-api-v2",
		"web-64c9b6f47-zx7kq":         "Deployment/web",
		"db-0":                        "StatefulSet/db",
		"db-node-12":                  "StatefulSet/db-node",
		"agent-x8k2p":                 "DaemonSet/agent",
		"node-agent-x8k2p":            "DaemonSet/node-agent",
		"backup-28412345-x8k2p":       "CronJob/backup",
		"backup-1633017600-x8k2p":     "CronJob/backup",
		"import-3-x8k2p":              "Job/import",
		"lonely":                      "Pod/lonely",
		"debug-shell":                 "Pod/debug-shell",
		"kube-proxy-gke-node-a1":      "Pod/kube-proxy-gke-node-a1",
		"-x8k2p":                      "Pod/-x8k2p",
		"trailing-":                   "Pod/trailing-",
		"":                            "Pod/",
	} {
		ref := ownerFromName("ns", pod)
		if got := ref.Kind + "/" + ref.Name; got != want || ref.Namespace != "ns" {
			t.Errorf("%s: %s in %s, want %s", pod, got, ref.Namespace, want)
		}
	}
}

func TestResolve(t *testing.T) {
	o := &owners{
		nodes: map[objectName]string{{"ns", "p-rs"}: "n1"},
		pods: map[objectName]owner{
			{"ns", "p-rs"}: {"ReplicaSet", "web-1"}, {"ns", "p-rs2"}: {"ReplicaSet", "api-5d4f8c7b9d"}, {"ns", "p-rs3"}: {"ReplicaSet", "bare"},
			{"ns", "p-rs4"}: {"ReplicaSet", "roll-1"}, {"ns", "p-rs5"}: {"ReplicaSet", "own"},
			{"ns", "p-job"}: {"Job", "j-1"}, {"ns", "p-job2"}: {"Job", "nightly-28412345"}, {"ns", "p-job3"}: {"Job", "once"},
			{"ns", "p-none"}: {"<none>", "<none>"}, {"ns", "p-static"}: {"Node", "n1"}, {"ns", "p-crd"}: {"Kafka", "k"},
		},
		replicaSets: map[objectName]owner{{"ns", "web-1"}: {"Deployment", "web"}, {"ns", "roll-1"}: {"Rollout", "roll"}, {"ns", "own"}: {"<none>", "<none>"}},
		jobs:        map[objectName]owner{{"ns", "j-1"}: {"CronJob", "cron"}},
	}

	for pod, want := range map[string]string{
		"p-rs": "apps/v1 Deployment web n1", "p-rs2": "apps/v1 Deployment api ", "p-rs3": "apps/v1 ReplicaSet bare ",
		"p-rs4": "argoproj.io/v1alpha1 Rollout roll ", "p-rs5": "apps/v1 ReplicaSet own ",
		"p-job": "batch/v1 CronJob cron ", "p-job2": "batch/v1 CronJob nightly ", "p-job3": "batch/v1 Job once ",
		"p-none": "v1 Pod p-none ", "p-static": "v1 Pod p-static ", "p-crd": " Kafka k ", "unknown-0": "apps/v1 StatefulSet unknown ",
	} {
		ref, node := o.resolve("ns", pod)
		if got := strings.Join([]string{ref.APIVersion, ref.Kind, ref.Name, node}, " "); got != want {
			t.Errorf("%s: %q, want %q", pod, got, want)
		}
	}
}

func TestPlanGrid(t *testing.T) {
	for _, c := range []struct {
		metric               string
		scrape, asked        time.Duration
		wantStep, wantWindow time.Duration
	}{
		{cpuMetric, 10 * time.Second, 0, time.Minute, time.Minute},
		{cpuMetric, 15 * time.Second, 0, time.Minute, time.Minute},
		{cpuMetric, 30 * time.Second, 0, 2 * time.Minute, 2 * time.Minute},
		{cpuMetric, time.Minute, 0, 5 * time.Minute, 5 * time.Minute},
		{cpuMetric, 2 * time.Minute, 0, 10 * time.Minute, 10 * time.Minute},
		{cpuMetric, 15 * time.Minute, 0, time.Hour, time.Hour},
		{cpuMetric, time.Minute, time.Minute, time.Minute, 4 * time.Minute},
		{cpuMetric, time.Minute, time.Hour, time.Hour, time.Hour},
		{memoryMetric, time.Minute, 0, 5 * time.Minute, 5 * time.Minute},
		{memoryMetric, time.Minute, time.Minute, time.Minute, 2 * time.Minute},
		{memoryMetric, 15 * time.Second, time.Minute, time.Minute, time.Minute},
	} {
		got := planGrid(c.metric, scrapeIntervals{usual: c.scrape}, c.asked)
		if got != (gridPlan{step: c.wantStep, window: c.wantWindow}) {
			t.Errorf("%s scraped every %v, step %v: %+v, want step %v and window %v", c.metric, c.scrape, c.asked, got, c.wantStep, c.wantWindow)
		}
		if err := checkStep(got.step); err != nil {
			t.Error(err)
		}
	}
}

// flat estimates the same number of containers at all times.
func flat(from time.Time, counts map[string]float64) estimates {
	e := estimates{byNamespace: map[string]series.Series{}}
	for ns, n := range counts {
		s := series.Series{Start: from, Step: time.Hour}
		for range 72 {
			s.Values = append(s.Values, n)
		}
		e.byNamespace[ns] = s
	}

	return e
}

func TestPlanUnitsKeepsTheFormula(t *testing.T) {
	step := 5 * time.Minute // 288 cells a day
	from := today.Add(-2 * day)
	cfg := DefaultConfig()
	cfg.MaxSamples = 100_000

	counts := map[string]float64{"big": 1000, "medium": 300}
	names := []string{"big", "medium"}
	for i := range 500 {
		ns := fmt.Sprintf("small-%03d", i)
		counts[ns] = 1
		names = append(names, ns)
	}

	units := planQueries(names, from.Add(6*time.Hour), today.Add(3*time.Hour), step, flat(from, counts), cfg)
	covered := map[string]time.Duration{}

	formula := 0
	for _, n := range names {
		for _, cells := range []float64{216, 288, 36} {
			formula += int(math.Ceil(counts[n] * cells / float64(cfg.MaxSamples)))
		}
	}

	for i, u := range units {
		if len(strings.Join(u.namespaces, "|")) > maxMatcher || u.cells > cfg.MaxPoints || u.cells < 1 {
			t.Errorf("query %d has %d cells of %d namespaces, want 1 to %d cells and a short matcher", i, u.cells, len(u.namespaces), cfg.MaxPoints)
		}

		sum := 0.0
		for _, ns := range u.namespaces {
			sum += counts[ns] * float64(u.cells)
			covered[ns] += time.Duration(u.cells) * step
		}

		if sum > float64(cfg.MaxSamples)*1.01 {
			t.Errorf("query %d has %v samples, want at most %d", i, sum, cfg.MaxSamples)
		}
		if last := u.end(step).Add(-1); u.from.Truncate(day) != last.Truncate(day) {
			t.Errorf("query %d from %v to %v crosses midnight, want one day", i, u.from, last)
		}
	}

	for _, ns := range names {
		if covered[ns] != 45*time.Hour {
			t.Errorf("%s is covered for %v, want 45h", ns, covered[ns])
		}
	}

	if len(units) > formula || len(units) > 3*10 {
		t.Errorf("%d queries, want at most %d by the formula, and at most 30 because small namespaces share", len(units), formula)
	}
}

func TestSplitCoversTheWhole(t *testing.T) {
	step := time.Minute
	type cell struct {
		ns  string
		min int
		end rune
	}

	for _, series := range []bool{false, true} {
		var leaves []usageQuery
		var cut func(u usageQuery)
		cut = func(u usageQuery) {
			halves, ok := u.split(step, series)
			if !ok {
				leaves = append(leaves, u)
				return
			}

			for _, h := range halves {
				cut(h)
			}
		}

		cut(usageQuery{from: today, cells: 5, namespaces: []string{"a", "b", "c"}})
		seen := map[cell]int{}
		for _, u := range leaves {
			if len(u.namespaces) != 1 || u.cells != 1 || len(u.endings) != 1 {
				t.Errorf("query %+v, want one that cannot be split: one namespace, cell and name ending", u)
			}
			seen[cell{u.namespaces[0], int(u.from.Sub(today) / step), rune(u.endings[0])}]++
		}

		if want := 3 * 5 * len(nameEndings); len(seen) != want || len(leaves) != want {
			t.Errorf("%d leaves with %d cells, want %d", len(leaves), len(seen), want)
		}
	}
}

// job returns a number after some work.
type job = func(context.Context) (int, error)

func jobOf(n int, work func() error) job {
	return func(context.Context) (int, error) { return n, work() }
}

func nothing() error { return nil }

func TestInOrderReturnsInOrder(t *testing.T) {
	const n = 50
	release := make([]chan struct{}, n)
	for i := range release {
		release[i] = make(chan struct{})
	}

	// Within a window of slots, the later job always ends first.
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i] = jobOf(i, func() error {
			if i%2 == 0 && i+1 < n {
				<-release[i+1]
			}

			close(release[i])
			return nil
		})
	}

	var got []int
	for i, err := range inOrder(t.Context(), 4, jobs) {
		if err != nil {
			t.Fatal(err)
		}

		got = append(got, i)
	}

	if !slices.IsSorted(got) || len(got) != n {
		t.Errorf("inOrder yielded %v, want all %d results in order", got, n)
	}

	boom := errors.New("boom")
	returned := 0
	var failure error
	for _, err := range inOrder(t.Context(), 3, []job{
		jobOf(0, nothing), jobOf(1, func() error { return boom }), jobOf(2, nothing),
	}) {
		failure = err

		if err == nil {
			returned++
		}
	}

	if !errors.Is(failure, boom) || returned != 1 {
		t.Errorf("error %v after %d results, want boom after 1", failure, returned)
	}
}

func TestTableDropsWhatCannotBe(t *testing.T) {
	u := usageQuery{from: time.Unix(0, 0), cells: 5}
	tab := &table{from: u.from, cells: cellsOf(time.Unix(60, 0), time.Minute, 5), maxValues: 100, names: newInterner()}
	tab.reset()
	labels := func(pairs ...string) (out []label) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, label{[]byte(pairs[i]), []byte(pairs[i+1])})
		}

		return out
	}

	whole := labels("namespace", "n", "pod", "p", "container", "c")
	add := func(l []label, points ...point) {
		t.Helper()

		if err := tab.add(l, points); err != nil {
			t.Fatal(err)
		}
	}

	add(whole,
		point{60_000, math.NaN()}, point{120_000, 1}, point{120_000, 2}, point{300_000, 4}, point{240_000, -1},
		point{0, 9}, point{360_000, 9}, point{61_000, 9}, point{math.MinInt64, 9}, point{math.MaxInt64, 9})
	add(whole, point{60_000, 7})                                                            // the same container again
	add(labels("namespace", "n", "pod", "p"), point{60_000, 7})                             // no container
	add(labels("namespace", "n", "pod", "q", "container", "c"), point{60_000, math.Inf(1)}) // nothing good

	if len(tab.rows) != 1 || tab.rows[0].first != 1 {
		t.Fatalf("rows %+v, want one that starts at cell 1", tab.rows)
	}

	if got := fmt.Sprint(tab.values); got != "[2 NaN NaN 4]" {
		t.Errorf("values %s, want [2 NaN NaN 4]", got)
	}
	if tab.invalid != 8+1+1+1 {
		t.Errorf("%d invalid, want 11", tab.invalid)
	}

	tab.maxValues = 5
	if err := tab.add(labels("namespace", "n", "pod", "r", "container", "c"), []point{{60_000, 1}, {300_000, 1}}); !errors.Is(err, errTooMany) {
		t.Errorf("error %v, want too many", err)
	}
}

func TestLimitsInTheWordsOfManyServers(t *testing.T) {
	for _, c := range []struct {
		status             int
		errorType, message string
		kind               ErrorKind
		series             bool
	}{
		{422, "execution", "query processing would load too many samples into memory in query execution", TooLarge, false},
		{400, "bad_data", "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)", TooLarge, true},
		{422, "execution", "the query exceeded the maximum number of chunks (limit: 2000000 chunks) (err-mimir-max-chunks-per-query)", TooLarge, false},
		{422, "execution", "the query exceeded the maximum number of series (limit: 100000 series) (err-mimir-max-series-per-query)", TooLarge, true},
		{422, "execution", "expanding series: the query hit the max number of series limit (limit: 100 series)", TooLarge, true},
		{422, "422", "error when executing query: cannot select more than -search.maxSamplesPerQuery=1000000000 samples", TooLarge, false},
		{422, "422", "the number of matching timeseries exceeds 30000; either narrow down the search or increase -search.max* command-line flag values", TooLarge, true},
		{422, "execution", "expanding series: proxy Series(): rpc error: code = ResourceExhausted desc = exceeded series limit: rpc error", TooLarge, true},
		{500, "internal", "received message larger than max (5000000 vs. 4194304)", TooLarge, false},
		{503, "timeout", "query timed out in expression evaluation", TooLarge, false},
		{504, "", "Gateway Time-out", TooLarge, false},
		{422, "execution", "expanding series: proxy Series(): rpc error: code = Aborted desc = fetch series for {} : rpc error: code = Unavailable desc = connection refused", Overloaded, true},
		{422, "execution", "found duplicate series for the match group", Refused, true},
		{400, "bad_data", "invalid parameter \"query\": parse error", Refused, false},
		{503, "", "Service Unavailable", Overloaded, false},
		{500, "internal", "expanding series: open block: no such file", Overloaded, true},
	} {
		e := errorFromStatus(c.status, c.errorType, c.message)
		if e.Kind != c.kind || isSeriesLimit(e) != c.series || e.Advice == "" {
			t.Errorf("%d %s: kind %q, about series %v, want %q, %v", c.status, c.message, e.Kind, isSeriesLimit(e), c.kind, c.series)
		}
	}
}

func TestInOrderEnds(t *testing.T) {
	var ended atomic.Int64
	waiting := func(ctx context.Context) (int, error) {
		<-ctx.Done()
		ended.Add(1)
		return 1, context.Cause(ctx)
	}

	for range inOrder(t.Context(), 2, []job{jobOf(0, nothing), waiting}) {
		break // The consumer stops, which cancels the running job.
	}

	if ended.Load() != 1 {
		t.Error("a job outlives its consumer, want it ended")
	}

	boom := errors.New("boom")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)

	results := 0
	var failure error
	for _, err := range inOrder(ctx, 2, []job{jobOf(0, nothing), jobOf(1, nothing), jobOf(2, nothing)}) {
		failure = err

		if err == nil {
			results++
		}
		cancel(boom)
	}

	if !errors.Is(failure, boom) || results != 1 {
		t.Errorf("error %v after %d results, want the cause of the cancellation after 1", failure, results)
	}
}

func TestInOrderHoldsFewResults(t *testing.T) {
	const workers = 3
	var held, most atomic.Int64
	jobs := make([]job, 100)
	for i := range jobs {
		jobs[i] = jobOf(i, func() error {
			n := held.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}

			return nil
		})
	}

	for _, err := range inOrder(t.Context(), workers, jobs) {
		if err != nil {
			t.Fatal(err)
		}

		held.Add(-1)
	}

	if most.Load() > workers {
		t.Errorf("%d results held, want at most %d", most.Load(), workers)
	}
}

func TestUsageRefusesNonsense(t *testing.T) {
	s := newSource(t, "http://127.0.0.1:1", nil)
	for _, req := range []metrics.UsageRequest{
		{Resource: "gpu", Start: today, End: today.Add(day)},
		{Resource: metrics.CPU, Start: today, End: today},
		{Resource: metrics.CPU, End: today},
	} {
		if err := usageError(t, s, req); err == nil {
			t.Errorf("%+v: want an error", req)
		}
	}

	if diff := cmp.Diff(metrics.Stats{}, s.Stats()); diff != "" {
		t.Errorf("Stats differ, want no request sent (-want +got):\n%s", diff)
	}
}
