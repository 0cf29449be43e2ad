// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/series"
)

// costSchema names the form of the output of `crane cost -o json`.
const costSchema = "crane.io/cost/v1"

// renderCostTable writes a line for each workload, namespace or node, in money a month.
func renderCostTable(w io.Writer, r *costReport) error {
	t := newTable()
	names := map[string]table.Row{
		byWorkload: {"NAMESPACE", "WORKLOAD"}, byNamespace: {"NAMESPACE"}, byNode: {"NODE", "GROUP", "CAPACITY"},
	}[r.by]
	header := append(table.Row{}, names...)
	header = append(header, "PODS", "BY REQUEST", "BY USE", "BY MAX")
	if r.by == byNode {
		header = append(append(table.Row{}, names...), "PODS", "PRICE", "IDLE BY REQUEST", "IDLE BY USE")
	}
	t.AppendHeader(header)
	switch r.by {
	case byNode:
		for _, n := range r.Nodes {
			t.AppendRow(table.Row{n.Node, n.Group, n.CapacityType, n.Pods, money(n.Cost), money(n.Idle.Request), r.ofUse(n.Idle.Usage)})
		}
		t.AppendFooter(table.Row{"TOTAL", "", "", r.Used.Pods, money(r.Cluster), money(r.Idle.Request), r.ofUse(r.Idle.Usage)})
	case byNamespace:
		for _, n := range r.Namespaces {
			t.AppendRow(append(table.Row{n.Namespace}, r.cells(n.Bill)...))
		}
	default:
		for _, c := range r.Workloads {
			t.AppendRow(append(table.Row{c.Namespace, c.Kind + "/" + c.Name}, r.cells(c.Bill)...))
		}
	}
	if r.by != byNode {
		blank := make(table.Row, len(names)-1)
		for i := range blank {
			blank[i] = ""
		}
		line := func(name string, pods any, request, use, most string) table.Row {
			return append(append(table.Row{name}, blank...), pods, request, use, most)
		}
		t.AppendFooter(line("WORKLOADS", r.Used.Pods, money(r.Used.Cost.Request), r.ofUse(r.Used.Cost.Usage), r.ofUse(r.Used.Cost.Max)))
		t.AppendFooter(line("IDLE", "", money(r.Idle.Request), r.ofUse(r.Idle.Usage), r.ofUse(r.Idle.Max)))
		t.AppendFooter(line("NODES", "", money(r.Cluster), money(r.Cluster), money(r.Cluster)))
	}
	t.SetColumnConfigs(columnConfigs(append(append(table.Row{}, header...), ""), len(names), maxNoteWidth)[:len(header)])
	var text strings.Builder
	text.WriteString(t.Render() + "\n")
	for line := range strings.Lines(r.notes()) {
		text.WriteString(wrapped("", line, terminalWidth(w)))
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}

func (r *costReport) cells(b cost.Bill) table.Row {
	return table.Row{b.Pods, money(b.Cost.Request), r.ofUse(b.Cost.Usage), r.ofUse(b.Cost.Max)}
}

func money(s cost.Split) string { return formatMoney(s.Total().PerMonth()) }

// ofUse leaves out what was not read.
func (r *costReport) ofUse(s cost.Split) string {
	if !r.withUse {
		return nothing
	}
	return money(s)
}

// notes are lines about what the figures rest on and what they leave out.
func (r *costReport) notes() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s for a month of %d hours, at prices of %s (%s).\n", r.book.Currency, cost.HoursPerMonth, r.book.Date, r.book.Source)
	if r.withUse {
		fmt.Fprintf(&b, "Use is the mean over %s.\n", r.windowText)
	} else {
		b.WriteString("Use was not read: no Prometheus is given, and none was found.\n")
	}
	if r.withUse && r.Used.WithoutUsage > 0 {
		fmt.Fprintf(&b, "%s without any known use cost nothing by use, and their request by max.\n", plural(r.Used.WithoutUsage, "pod"))
	}
	if r.Pending > 0 {
		fmt.Fprintf(&b, "%s on no node and cost nothing.\n", are(r.Pending))
	}
	if r.OnUnknownNode > 0 {
		fmt.Fprintf(&b, "%s on a node that is gone and cost nothing.\n", are(r.OnUnknownNode))
	}
	for _, line := range r.sources.lines() {
		b.WriteString(line + "\n")
	}
	for _, n := range r.Nodes {
		if n.Note != "" {
			fmt.Fprintf(&b, "Node %s: %s.\n", n.Node, n.Note)
		}
	}
	return b.String()
}

func are(pods int) string {
	if pods == 1 {
		return "1 pod is"
	}
	return plural(pods, "pod") + " are"
}

// jsonCosts is the output of `crane cost -o json`. Amounts are in the currency, for an hour.
type jsonCosts struct {
	Schema string    `json:"schema"`
	Time   time.Time `json:"time"`
	// Window is how far back the mean use reaches, absent where use was not read: by use and by max are then absent too.
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
	// PodsWithoutUse cost nothing by use, and their request by max.
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

// jsonClusterCost sums up: by each measure Workloads and Idle are Nodes.
type jsonClusterCost struct {
	Nodes     jsonSplit  `json:"nodes"`
	Workloads jsonShares `json:"workloads"`
	Idle      jsonShares `json:"idle"`
	// PendingPods are on no node, LostPods on one that is gone; they cost nothing.
	PendingPods int `json:"pendingPods,omitempty"`
	LostPods    int `json:"lostPods,omitempty"`
}

func renderCostJSON(w io.Writer, r *costReport) error {
	p := prices{book: r.book}
	out := jsonCosts{
		Schema: costSchema, Time: r.now.UTC(), Prices: p.json(), Sources: r.sources.json(),
		Workloads: []jsonBill{}, Namespaces: []jsonBill{}, Nodes: []jsonNode{},
		Cluster: jsonClusterCost{
			Nodes: splitJSON(r.Cluster), Workloads: r.sharesJSON(r.Used.Cost), Idle: r.sharesJSON(r.Idle),
			PendingPods: r.Pending, LostPods: r.OnUnknownNode,
		},
	}
	if r.withUse {
		out.Window = series.FormatDuration(r.window)
	}
	bill := func(b cost.Bill) jsonBill {
		j := jsonBill{Pods: b.Pods, Cost: r.sharesJSON(b.Cost)}
		if r.withUse {
			j.PodsWithoutUse = b.WithoutUsage
		}
		return j
	}
	for _, c := range r.Workloads {
		j := bill(c.Bill)
		j.Namespace, j.Kind, j.Name = c.Namespace, c.Kind, c.Name
		out.Workloads = append(out.Workloads, j)
	}
	for _, n := range r.Namespaces {
		j := bill(n.Bill)
		j.Namespace = n.Namespace
		out.Namespaces = append(out.Namespaces, j)
	}
	for _, n := range r.Nodes {
		out.Nodes = append(out.Nodes, jsonNode{
			Name: n.Node, Group: n.Group, CapacityType: n.CapacityType, Pods: n.Pods,
			Cost: splitJSON(n.Cost), Idle: r.sharesJSON(n.Idle), Note: n.Note,
		})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return fmt.Errorf("encoding JSON: %w", err)
	}
	return nil
}

func (r *costReport) sharesJSON(s cost.Shares) jsonShares {
	out := jsonShares{ByRequest: splitJSON(s.Request)}
	if r.withUse {
		use, most := splitJSON(s.Usage), splitJSON(s.Max)
		out.ByUse, out.ByMax = &use, &most
	}
	return out
}

func splitJSON(s cost.Split) jsonSplit {
	return jsonSplit{CPU: s.CPU.PerHour(), Memory: s.Memory.PerHour(), GPU: s.GPU.PerHour(), Total: s.Total().PerHour()}
}
