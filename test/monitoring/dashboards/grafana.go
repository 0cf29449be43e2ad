// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboards defines the Grafana dashboards of Crane and renders them as JSON of dashboard schema 1.
package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Dashboard is a Grafana dashboard: rows of panels.
type Dashboard struct {
	// UID is the file name and the path in Grafana.
	UID, Title, Description string
	Variables               []Variable
	Rows                    []Row
}

// Variable is a selection at the top of a dashboard.
type Variable struct {
	// Name is used as $name in expressions. Query is an instant query whose values of Label are offered; a variable without
	// one is a text box with Default.
	Name, Query, Label, Default string
}

// Row is a titled row of panels.
type Row struct {
	Title  string
	Panels []Panel
}

// Kinds of panels.
const (
	TimeSeries = "timeseries"
	Stat       = "stat"
	Gauge      = "gauge"
	Table      = "table"
	PieChart   = "piechart"
)

// Panel is one panel. Unit is a unit of Grafana, such as bytes or percentunit.
type Panel struct {
	Title, Kind, Unit, Help string
	Queries                 []Query
}

// Query is an expression with the legend of its series.
type Query struct{ Expr, Legend string }

// Size of the grid of a dashboard, in its units.
const (
	gridWidth   = 24
	smallWidth  = 6
	smallHeight = 5
	largeWidth  = 12
	largeHeight = 8
)

type (
	object = map[string]any
	list   = []any
)

// JSON renders the dashboard, in a form that does not change between runs.
func (d Dashboard) JSON() ([]byte, error) {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	variables := list{object{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": object{}}}
	for _, v := range d.Variables {
		variables = append(variables, v.render(source))
	}

	var panels list
	id, y := 0, 0
	for _, row := range d.Rows {
		id++
		panels = append(panels, object{"id": id, "type": "row", "title": row.Title, "collapsed": false, "panels": list{}, "gridPos": position(0, y, gridWidth, 1)})
		// Panels flow from left to right and continue below the tallest one of a line.
		x, tallest := 0, 0

		y++
		for _, p := range row.Panels {
			width, height := p.size()
			if x+width > gridWidth {
				x = 0
				y += tallest
				tallest = 0
			}

			id++
			panels = append(panels, p.render(id, position(x, y, width, height), source))
			x += width
			tallest = max(tallest, height)
		}

		y += tallest
	}

	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")

	err := encoder.Encode(object{
		"uid": d.UID, "title": d.Title, "description": d.Description, "tags": list{"crane"}, "schemaVersion": 39, "editable": true,
		"time": object{"from": "now-24h", "to": "now"}, "refresh": "1m", "timezone": "browser",
		"templating": object{"list": variables}, "panels": panels, "annotations": object{"list": list{}},
	})
	if err != nil {
		return nil, fmt.Errorf("dashboard %s: %w", d.UID, err)
	}

	return out.Bytes(), nil
}

func position(x, y, width, height int) object {
	return object{"x": x, "y": y, "w": width, "h": height}
}

// size returns the width and height of a panel.
func (p Panel) size() (width, height int) {
	switch p.Kind {
	case Stat, Gauge:
		return smallWidth, smallHeight
	case Table:
		return gridWidth, largeHeight
	default:
		return largeWidth, largeHeight
	}
}

func (v Variable) render(source object) object {
	if v.Query == "" {
		return object{"name": v.Name, "type": "textbox", "query": v.Default, "current": object{"text": v.Default, "value": v.Default}}
	}

	return object{
		"name": v.Name, "type": "query", "datasource": source, "query": fmt.Sprintf("label_values(%s, %s)", v.Query, v.Label),
		"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": list{"$__all"}},
	}
}

func (p Panel) render(id int, grid, source object) object {
	var targets list
	for i, q := range p.Queries {
		target := object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.Expr, "legendFormat": q.Legend}
		if p.Kind != TimeSeries {
			target["instant"] = true
		}
		if p.Kind == Table {
			target["format"] = "table"
		}

		targets = append(targets, target)
	}

	// Shares are drawn on a scale from 0, gauges up to 1, so that panels compare.
	defaults := object{"unit": p.Unit}
	if p.Unit == "percentunit" {
		defaults["min"] = 0
	}
	if p.Kind == Gauge {
		defaults["max"] = 1
	}

	out := object{
		"id": id, "type": p.Kind, "title": p.Title, "description": p.Help, "datasource": source, "gridPos": grid, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": list{}},
	}

	if p.Kind == Table && len(p.Queries) > 1 {
		out["transformations"] = list{object{"id": "merge", "options": object{}}}
	}
	if p.Kind == TimeSeries {
		out["options"] = object{"tooltip": object{"mode": "multi", "sort": "desc"}, "legend": object{"displayMode": "list", "placement": "bottom"}}
	}

	return out
}

// Expand replaces the variables of an expression by what they are when everything is selected, for tests.
func Expand(expr string) string {
	return strings.NewReplacer("$namespace", ".*", "$workload", ".*", "$label", "app_kubernetes_io_name", "$__rate_interval", "5m").Replace(expr)
}
