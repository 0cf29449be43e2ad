// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/recommendation/allocation"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/units"
)

const fixturePrices = `{"currency":"EUR","source":"contract 7","date":"2026-01-31","default":{"prices":{"cpu":1,"memory":0.5}}}`

func fixturePriceBook(t *testing.T) *cost.PriceBook {
	t.Helper()

	b, err := cost.ParsePriceBook([]byte(fixturePrices))
	if err != nil {
		t.Fatal(err)
	}

	return b
}

// fixtureCluster returns a cluster with a pod whose usage is below its request, one without usage data, a pending pod
// and one on an unknown node.
func fixtureCluster() workload.Cluster {
	pod := func(name, on string, cpu units.MilliCPU) workload.Pod {
		return workload.Pod{
			Name: name, Node: on, Owner: workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: name},
			Requests: cost.Amounts{CPU: cpu, Memory: 1 << 30},
		}
	}

	return workload.Cluster{
		Nodes: []cost.Node{{Name: "n1", Size: cost.Amounts{CPU: 4000, Memory: 8 << 30}}, {Name: "n2"}},
		Pods:  []workload.Pod{pod("web", "n1", 1000), pod("db", "n1", 500), pod("late", "", 100), pod("lost", "n9", 100)},
	}
}

// allocateFixture allocates the costs of a cluster as crane cost does.
func allocateFixture(book *cost.PriceBook, cluster workload.Cluster, use func(namespace, pod string) (cost.Amounts, bool)) (cost.Allocation, error) {
	tariff, err := cost.NewTariff(book, cluster.Nodes)
	if err != nil {
		return cost.Allocation{}, err
	}

	return cost.Allocate(tariff, cluster.CostPods(use)), nil
}

func fixtureCostReport(t *testing.T, by string, withUse bool) *costReport {
	t.Helper()

	a, err := allocateFixture(fixturePriceBook(t), fixtureCluster(), func(_, pod string) (cost.Amounts, bool) {
		return cost.Amounts{CPU: 250, Memory: 2 << 30}, withUse && pod == "web"
	})
	if err != nil {
		t.Fatal(err)
	}

	return &costReport{
		Report:     &allocation.Report{Now: time.Unix(1_700_000_000, 0), Window: time.Hour, Book: fixturePriceBook(t), WithUsage: withUse, Allocation: a},
		grouping:   by,
		windowText: "1h",
	}
}

func TestCostTables(t *testing.T) {
	for name, c := range map[string]struct {
		by      string
		withUse bool
	}{
		"cost.workload": {byWorkload, true}, "cost.namespace": {byNamespace, true}, "cost.node": {byNode, true}, "cost.requests": {byWorkload, false},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := renderCostTable(&b, fixtureCostReport(t, c.by, c.withUse)); err != nil {
				t.Fatal(err)
			}

			golden(t, name+".table", b.Bytes())
		})
	}
}

func TestCostJSON(t *testing.T) {
	var b bytes.Buffer
	if err := renderCostJSON(&b, fixtureCostReport(t, byWorkload, true)); err != nil {
		t.Fatal(err)
	}

	golden(t, "cost.json", b.Bytes())
	b.Reset()

	if err := renderCostJSON(&b, fixtureCostReport(t, byWorkload, false)); err != nil {
		t.Fatal(err)
	}

	for _, absent := range []string{"byUse", "byMax", "window", "podsWithoutUse"} {
		if strings.Contains(b.String(), absent) {
			t.Errorf("the output without usage has %s, want none:\n%s", absent, b.String())
		}
	}
}

// TestCostOfNamespaces checks that rows and totals are those of the selected namespaces, and that a misspelled one is an error.
func TestCostOfNamespaces(t *testing.T) {
	cluster := fixtureCluster()
	cluster.Pods[1].Owner.Namespace = "data"
	report := func() *costReport {
		a, err := allocateFixture(fixturePriceBook(t), cluster, func(_, pod string) (cost.Amounts, bool) { return cost.Amounts{CPU: 250, Memory: 2 << 30}, pod == "web" })
		if err != nil {
			t.Fatal(err)
		}

		return &costReport{
			Report:     &allocation.Report{Now: time.Unix(1_700_000_000, 0), Window: time.Hour, Book: fixturePriceBook(t), WithUsage: true, Allocation: a},
			grouping:   byWorkload,
			windowText: "1h",
		}
	}

	shop := report()
	if err := shop.selectNamespaces([]string{"shop"}); err != nil {
		t.Fatal(err)
	}

	var table, text bytes.Buffer
	if err := errors.Join(renderCostTable(&table, shop), renderCostJSON(&text, shop)); err != nil {
		t.Fatal(err)
	}

	if got := table.String(); strings.Contains(got, "Deployment/db") || strings.Contains(got, "IDLE") || !strings.Contains(got, "without --namespace") ||
		strings.Count(got, money(shop.Workloads[0].Cost.Request)) != 2 || strings.Contains(got, "without usage data") {
		t.Errorf("want web and a total of the same, without idle capacity and pods of data:\n%s", got)
	}

	var out jsonCosts
	if err := json.Unmarshal(text.Bytes(), &out); err != nil {
		t.Fatal(err)
	}

	if whole := report(); len(out.Workloads) != 1 || out.Workloads[0].Name != "web" || len(out.Namespaces) != 1 || out.Cluster.Workloads.ByRequest != splitJSON(whole.Used.Cost.Request) {
		t.Errorf("JSON of namespace shop = %+v, want workload web alone and the totals of the cluster", out)
	}

	both := report()
	if err := both.selectNamespaces([]string{"shop", "data"}); err != nil || len(both.Workloads) != 2 || *both.selected != both.Used {
		t.Errorf("selectNamespaces(shop, data) = %v with the sum %+v, want all workloads", err, both.selected)
	}

	exit, ok := errors.AsType[*exitError](report().selectNamespaces([]string{"shp"}))
	if !ok || exit.code != exitNoResult || !strings.Contains(exit.Error(), "namespace shp has no pod on a node; did you mean shop?") {
		t.Errorf("selectNamespaces(shp) = %v, want exit code %d and the suggestion shop", exit, exitNoResult)
	}
}

func TestCostFlags(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("currency: USD\nsource: s\ndate: \"2026-01-01\"\ndefault: {prices: {cpu: -1, memory: 1}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"grouping":             {[]string{"cost", "--by", "team"}, exitUsage, `--by "team": want workload, namespace or node`},
		"format":               {[]string{"cost", "-o", "xml"}, exitUsage, `--output "xml"`},
		"nodes of a namespace": {[]string{"cost", "--by", "node", "-n", "shop"}, exitUsage, "omit --namespace"},
		"window":               {[]string{"cost", "--window", "soon"}, exitUsage, "--window"},
		"short window":         {[]string{"cost", "--window", "1m"}, exitUsage, "at least 5m"},
		"price below zero":     {[]string{"cost", "--price-book", bad}, exitUsage, "bad.yaml: default.prices.cpu: \"-1\": a price must be above zero"},
		"price of recommend":   {[]string{"recommend", "--prometheus", "http://127.0.0.1:1", "--price-book", bad}, exitUsage, "default.prices.cpu: \"-1\""},
		"no file":              {[]string{"cost", "--price-book", "none.yaml"}, exitUsage, "none.yaml"},
		"prices with files":    {[]string{"recommend", "--from", t.TempDir(), "--price-book", bad}, exitUsage, "price-book"},
		"no cluster":           {[]string{"cost"}, exitFailure, "read from the Kubernetes API"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := runCrane(t, c.args...)
			if code != c.code || !strings.Contains(errOut, c.want) || out != "" {
				t.Errorf("exit %d, want %d: %s%s", code, c.code, errOut, out)
			}
		})
	}
}

// savingsFixtureReport returns fixtureReport with prices; web runs on a known node.
func savingsFixtureReport(t *testing.T) *report {
	t.Helper()

	r := fixtureReport()
	cluster := fixtureCluster()
	tariff, err := cost.NewTariff(fixturePriceBook(t), cluster.Nodes)
	if err != nil {
		t.Fatal(err)
	}

	r.Price(&sizereport.PriceInfo{Book: fixturePriceBook(t)}, tariff, cluster.Placement(), nil)
	return r
}

func TestSavings(t *testing.T) {
	var b bytes.Buffer
	if err := renderTable(&b, savingsFixtureReport(t)); err != nil {
		t.Fatal(err)
	}

	// The proxy requests 64 MiB less in each of 3 pods, the app 512 MiB more: its CPU has no current request.
	for _, want := range []string{"EUR/MONTH", "68.44", "costs 547.50", "TOTAL", "Not counted: 2 containers", "Prices in EUR of 2026-01-31"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}

	b.Reset()
	if err := renderJSON(&b, savingsFixtureReport(t)); err != nil {
		t.Fatal(err)
	}

	var out jsonReport
	if err := json.Unmarshal(b.Bytes(), &out); err != nil {
		t.Fatal(err)
	}

	web := out.Workloads[0].Saving
	young := out.Workloads[1].Saving

	monthly := 3 * (64 - 512) / 1024.0 * 0.5 * cost.HoursPerMonth
	if web.Memory != 3*(64-512)<<20 || math.Abs(web.Monthly-monthly) > 1e-6 || web.PricedFrom != string(cost.FromNodes) {
		t.Errorf("web: %+v, want %v a month", web, monthly)
	}
	if young.Monthly != 0 || len(young.NotCounted) != 2 || young.PricedFrom != string(cost.FromClusterMean) {
		t.Errorf("saving of the young workload = %+v, want 0, both resources not counted, at mean prices", young)
	}
	if len(out.Namespaces) != 1 || out.Namespaces[0].Saving.Monthly != web.Monthly || out.Totals.Saving.Monthly != web.Monthly || out.Prices.Currency != "EUR" {
		t.Errorf("namespaces %+v, totals %+v, prices %+v, want the saving of web in EUR", out.Namespaces, out.Totals.Saving, out.Prices)
	}

	if text := strings.Join(web.NotCounted, ";"); text != "cpu of app: no request today" {
		t.Errorf("web does not count %q, want the CPU of app alone", text)
	}
}

func TestFormatMoney(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 0.004: "0.004", -0.0001: "-0.0001", 12.345: "12.35", 1234567: "1234567.00", -3: "-3.00"} {
		if got := formatMoney(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}
