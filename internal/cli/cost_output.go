// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/component/documents"
	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/component/texttable"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/internal/recommendation/sizereport"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/units"
)

// costSchema is the version of the schema of `crane cost -o json`.
const costSchema = "crane.io/cost/v1"

// renderCostTable writes one row per workload, namespace or node, in money per month.
func renderCostTable(w io.Writer, r *costReport) error {
	t := texttable.New()
	names := map[string]table.Row{
		byWorkload: {"NAMESPACE", "WORKLOAD"}, byNamespace: {"NAMESPACE"}, byNode: {"NODE", "GROUP", "CAPACITY"},
	}[r.grouping]

	header := append(table.Row{}, names...)
	header = append(header, "PODS", "BY REQUEST", "BY USE", "BY MAX")
	if r.grouping == byNode {
		header = append(append(table.Row{}, names...), "PODS", "PRICE", "IDLE BY REQUEST", "IDLE BY USE")
	}

	t.AppendHeader(header)
	switch r.grouping {
	case byNode:
		for _, n := range r.Nodes {
			t.AppendRow(table.Row{n.Node, n.Group, n.CapacityType, n.Pods, money(n.Cost), money(n.Idle.Request), r.usageCost(n.Idle.Usage)})
		}
		t.AppendFooter(table.Row{"TOTAL", "", "", r.Used.Pods, money(r.Cluster), money(r.Idle.Request), r.usageCost(r.Idle.Usage)})

	case byNamespace:
		for _, n := range r.Namespaces {
			t.AppendRow(append(table.Row{n.Namespace}, r.cells(n.Bill)...))
		}
	default:
		for _, c := range r.Workloads {
			t.AppendRow(append(table.Row{c.Namespace, c.Kind + "/" + c.Name}, r.cells(c.Bill)...))
		}
	}

	if r.grouping != byNode {
		blank := make(table.Row, len(names)-1)
		for i := range blank {
			blank[i] = ""
		}

		footer := func(name string, cells table.Row) {
			t.AppendFooter(append(append(table.Row{name}, blank...), cells...))
		}

		if r.selected != nil {
			footer("TOTAL", r.cells(*r.selected))
		} else {
			footer("WORKLOADS", r.cells(r.Used))
			footer("IDLE", table.Row{"", money(r.Idle.Request), r.usageCost(r.Idle.Usage), r.usageCost(r.Idle.Max)})
			footer("NODES", table.Row{"", money(r.Cluster), money(r.Cluster), money(r.Cluster)})
		}
	}

	t.SetColumnConfigs(columnConfigs(append(append(table.Row{}, header...), ""), len(names), maxNoteWidth)[:len(header)])
	var text strings.Builder
	text.WriteString(t.Render() + "\n")

	for line := range strings.Lines(r.notes()) {
		text.WriteString(wrapText("", line, progressline.TerminalWidth(w)))
	}

	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}

	return nil
}

func (r *costReport) cells(b cost.Bill) table.Row {
	return table.Row{b.Pods, money(b.Cost.Request), r.usageCost(b.Cost.Usage), r.usageCost(b.Cost.Max)}
}

func money(s cost.Split) string { return formatMoney(s.Total().PerMonth()) }

// usageCost returns the cost by usage, or emptyCell if no usage was read.
func (r *costReport) usageCost(s cost.Split) string {
	if !r.WithUsage {
		return emptyCell
	}

	return money(s)
}

// notes returns lines about the basis of the figures and excluded pods.
func (r *costReport) notes() string {
	var b strings.Builder
	termtext.Fprintf(&b, "%s for a month of %d hours, at prices of %s (%s).\n", r.Book.Currency, cost.HoursPerMonth, r.Book.Date, r.Book.Source)

	if r.WithUsage {
		termtext.Fprintf(&b, "Usage is the mean over %s.\n", r.windowText)
	} else {
		b.WriteString("Usage was not read: no Prometheus is set or was discovered.\n")
	}

	// Notes about pods are those of the selected namespaces.
	bill := r.Used
	if r.selected != nil {
		bill = *r.selected
		b.WriteString("Idle capacity belongs to the whole cluster: crane cost without --namespace prints it.\n")
	}

	if r.WithUsage && bill.WithoutUsage > 0 {
		termtext.Fprintf(&b, "%s without usage data: no cost by usage, cost of the request by max.\n", units.FormatCount(bill.WithoutUsage, "pod"))
	}
	if r.Pending > 0 {
		termtext.Fprintf(&b, "Not counted: %s (not scheduled).\n", units.FormatCount(r.Pending, "pod"))
	}
	if r.OnUnknownNode > 0 {
		termtext.Fprintf(&b, "Not counted: %s (on a deleted node).\n", units.FormatCount(r.OnUnknownNode, "pod"))
	}

	for _, line := range r.Sources.Lines() {
		b.WriteString(line + "\n")
	}

	for _, n := range r.Nodes {
		if n.Note != "" {
			termtext.Fprintf(&b, "Node %s: %s.\n", n.Node, n.Note)
		}
	}

	return b.String()
}

// jsonCosts is the output of `crane cost -o json`. Amounts are in the currency per hour.
type jsonCosts struct {
	Schema string    `json:"schema"`
	Time   time.Time `json:"time"`
	// Window is the length of the window of the mean usage. It is absent if usage was not read, as are the costs by
	// use and by max.
	Window     string          `json:"window,omitempty"`
	Prices     *jsonPrices     `json:"prices"`
	Sources    *jsonSources    `json:"sources,omitempty"`
	Workloads  []jsonBill      `json:"workloads"`
	Namespaces []jsonBill      `json:"namespaces"`
	Nodes      []jsonNode      `json:"nodes"`
	Cluster    jsonClusterCost `json:"cluster"`
}

type jsonBill struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind,omitempty"`
	Name      string `json:"name,omitempty"`
	Pods      int    `json:"pods"`
	// PodsWithoutUse is the number of pods without usage data: they cost nothing by use, and their request by max.
	PodsWithoutUse int        `json:"podsWithoutUse,omitempty"`
	Cost           jsonShares `json:"cost"`
}

type jsonShares struct {
	ByRequest jsonSplit  `json:"byRequest"`
	ByUse     *jsonSplit `json:"byUse,omitempty"`
	ByMax     *jsonSplit `json:"byMax,omitempty"`
}

type jsonSplit struct {
	CPU    float64 `json:"cpu"`
	Memory float64 `json:"memory"`
	GPU    float64 `json:"gpu,omitempty"`
	Total  float64 `json:"total"`
}

type jsonNode struct {
	Name         string     `json:"name"`
	Group        string     `json:"group"`
	CapacityType string     `json:"capacityType"`
	Pods         int        `json:"pods"`
	Cost         jsonSplit  `json:"cost"`
	Idle         jsonShares `json:"idle"`
	Note         string     `json:"note,omitempty"`
}

// jsonClusterCost is the total: for each method, Workloads plus Idle equals Nodes.
type jsonClusterCost struct {
	Nodes     jsonSplit  `json:"nodes"`
	Workloads jsonShares `json:"workloads"`
	Idle      jsonShares `json:"idle"`
	// PendingPods are not scheduled, LostPods are on deleted nodes; they cost nothing.
	PendingPods int `json:"pendingPods,omitempty"`
	LostPods    int `json:"lostPods,omitempty"`
}

func renderCostJSON(w io.Writer, r *costReport) error {
	out := jsonCosts{
		Schema:     costSchema,
		Time:       r.Now.UTC(),
		Prices:     newJSONPrices(&sizereport.PriceInfo{Book: r.Book}),
		Sources:    newJSONSources(r.Sources),
		Workloads:  []jsonBill{},
		Namespaces: []jsonBill{},
		Nodes:      []jsonNode{},
		Cluster: jsonClusterCost{
			Nodes:       splitJSON(r.Cluster),
			Workloads:   r.sharesJSON(r.Used.Cost),
			Idle:        r.sharesJSON(r.Idle),
			PendingPods: r.Pending,
			LostPods:    r.OnUnknownNode,
		},
	}

	if r.WithUsage {
		out.Window = units.FormatDuration(r.Window)
	}

	// Without usage, the number of pods without usage would be that of all pods.
	bill := func(b cost.Bill) jsonBill {
		j := jsonBill{Pods: b.Pods, Cost: r.sharesJSON(b.Cost)}
		if r.WithUsage {
			j.PodsWithoutUse = b.WithoutUsage
		}

		return j
	}

	for _, c := range r.Workloads {
		j := bill(c.Bill)
		j.Namespace = c.Namespace
		j.Kind = c.Kind
		j.Name = c.Name
		out.Workloads = append(out.Workloads, j)
	}

	for _, n := range r.Namespaces {
		j := bill(n.Bill)
		j.Namespace = n.Namespace
		out.Namespaces = append(out.Namespaces, j)
	}

	for _, n := range r.Nodes {
		out.Nodes = append(out.Nodes, jsonNode{
			Name:         n.Node,
			Group:        n.Group,
			CapacityType: n.CapacityType,
			Pods:         n.Pods,
			Cost:         splitJSON(n.Cost),
			Idle:         r.sharesJSON(n.Idle),
			Note:         n.Note,
		})
	}

	return documents.WriteJSON(w, out)
}

func (r *costReport) sharesJSON(s cost.Shares) jsonShares {
	out := jsonShares{ByRequest: splitJSON(s.Request)}
	if r.WithUsage {
		use := splitJSON(s.Usage)
		maxCost := splitJSON(s.Max)
		out.ByUse = &use
		out.ByMax = &maxCost
	}

	return out
}

func splitJSON(s cost.Split) jsonSplit {
	return jsonSplit{
		CPU:    s.CPU.PerHour(),
		Memory: s.Memory.PerHour(),
		GPU:    s.GPU.PerHour(),
		Total:  s.Total().PerHour(),
	}
}
