// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/component/documents"
	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/component/texttable"
	"crane.io/crane/internal/metrics/progressline"
	"crane.io/crane/pkg/savings"
	"crane.io/crane/pkg/units"
)

// reportSchema is the version of the schema of `crane report -o json`.
const reportSchema = "crane.io/report/v1"

// idleRow is the row of the capacity that no namespace requests. It is not a valid name of a namespace.
const idleRow = "(idle)"

// reportTable is a table of one currency as texts.
type reportTable struct {
	Currency string
	Header   []string
	Rows     [][]string
	Footer   []string
}

// tables returns a table for each currency, namespaces by cost.
func (r *monthlyReport) tables() []reportTable {
	var out []reportTable
	for _, a := range r.accounts {
		t := reportTable{Currency: a.Currency, Header: []string{"NAMESPACE", "COST", "PROMISED", "REALIZED", "OF PROMISED", "NOT ADOPTED"}}
		for _, name := range namespacesByCost(a) {
			t.Rows = append(t.Rows, reportRow(name, a.Namespaces[name]))
		}

		t.Rows = append(t.Rows, []string{idleRow, formatMoney(a.Idle()), emptyCell, emptyCell, emptyCell, emptyCell})
		t.Footer = reportRow("TOTAL", a.Total().Amounts)
		out = append(out, t)
	}

	return out
}

func namespacesByCost(a savings.Account) []string {
	return slices.SortedFunc(maps.Keys(a.Namespaces), func(x, y string) int {
		return cmp.Or(cmp.Compare(a.Namespaces[y].Cost, a.Namespaces[x].Cost), cmp.Compare(x, y))
	})
}

func reportRow(name string, a savings.Amounts) []string {
	share := emptyCell
	if a.Promised > 0 {
		share = strconv.FormatFloat(a.Realized/a.Promised*100, 'f', 0, 64) + "%"
	}

	return []string{name, formatMoney(a.Cost), formatMoney(a.Promised), formatMoney(a.Realized), share, formatMoney(a.Available)}
}

// title names the month and the currencies.
func (r *monthlyReport) title() string { return "Savings of " + r.month.Format("January 2006") }

// notes returns what the amounts contain, and what they do not.
func (r *monthlyReport) notes() []string {
	elapsed := r.elapsed()
	observed := r.observed()
	out := []string{fmt.Sprintf("Observed: %s of %s hours until %s.", formatHours(observed), formatHours(elapsed), r.until.Format(time.RFC3339))}
	if missing := elapsed - observed; missing > elapsed/100 {
		out = append(out, fmt.Sprintf("Not known: %s hours in which craned did not record. They are in no amount.", formatHours(missing)))
	}

	if n := r.unknown(); n > 0 {
		out = append(out, fmt.Sprintf("Not known: the savings of up to %s at a time, which are in no amount: adopted replicas, or no readable state of the adoption.",
			units.FormatCount(n, "adopted workload")))
	}

	return append(out, "Cost is by request. A lower request releases capacity; the bill falls when nodes are removed.")
}

func formatHours(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

func renderReportTable(w io.Writer, r *monthlyReport) error {
	var text strings.Builder
	text.WriteString(r.title() + "\n")

	for _, data := range r.tables() {
		t := texttable.New()
		t.AppendHeader(toRow(data.Header))

		for _, row := range data.Rows {
			t.AppendRow(toRow(row))
		}

		t.AppendFooter(toRow(data.Footer))
		t.SetColumnConfigs(columnConfigs(append(toRow(data.Header), ""), 1, maxNoteWidth)[:len(data.Header)])
		text.WriteString("\n" + termtext.Line(data.Currency) + "\n" + t.Render() + "\n")
	}

	text.WriteString("\n")
	for _, note := range r.notes() {
		text.WriteString(wrapText("", note, progressline.TerminalWidth(w)))
	}

	_, err := io.WriteString(w, text.String())
	return err
}

func toRow(cells []string) table.Row {
	out := make(table.Row, 0, len(cells)+1)
	for _, cell := range cells {
		out = append(out, cell)
	}

	return out
}

func renderReportMarkdown(w io.Writer, r *monthlyReport) error {
	var b strings.Builder
	termtext.Fprintf(&b, "# %s\n", documents.MarkdownText(r.title()))
	line := func(cells []string, mark string) {
		for _, cell := range cells {
			b.WriteString("| " + mark + documents.MarkdownText(cell) + mark + " ")
		}
		b.WriteString("|\n")
	}

	for _, data := range r.tables() {
		termtext.Fprintf(&b, "\n%s\n\n", documents.MarkdownParagraph(data.Currency))
		line(data.Header, "")
		b.WriteString("| --- " + strings.Repeat("| ---: ", len(data.Header)-1) + "|\n")

		for _, row := range data.Rows {
			line(row, "")
		}
		line(data.Footer, "**")
	}

	b.WriteString("\n")
	for _, note := range r.notes() {
		termtext.Fprintf(&b, "- %s\n", documents.MarkdownParagraph(note))
	}

	_, err := io.WriteString(w, b.String())
	return err
}

//go:embed monthly_report.html.tmpl
var reportTemplate string

func renderReportHTML(w io.Writer, r *monthlyReport) error {
	page, err := template.New("report").Parse(reportTemplate)
	if err != nil {
		return fmt.Errorf("parsing the template: %w", err)
	}

	return page.Execute(w, struct {
		Title  string
		Tables []reportTable
		Notes  []string
	}{r.title(), r.tables(), r.notes()})
}

// jsonMonthlyReport is the output of `crane report -o json`.
type jsonMonthlyReport struct {
	Schema string `json:"schema"`
	Month  string `json:"month"`
	// Until is the end of the record. ElapsedHours are the hours of the month until then, ObservedHours those in the amounts.
	Until         time.Time `json:"until"`
	ElapsedHours  float64   `json:"elapsedHours"`
	ObservedHours float64   `json:"observedHours"`
	// Unknown is the largest number of adopted workloads whose saving could not be determined.
	Unknown  int               `json:"unknown"`
	Accounts []savings.Account `json:"accounts"`
}

func renderReportJSON(w io.Writer, r *monthlyReport) error {
	return documents.WriteJSON(w, jsonMonthlyReport{
		Schema:        reportSchema,
		Month:         r.month.Format(savings.MonthLayout),
		Until:         r.until,
		ElapsedHours:  r.elapsed(),
		ObservedHours: r.observed(),
		Unknown:       r.unknown(),
		Accounts:      r.accounts,
	})
}

// focusColumns are columns of FOCUS 1.1, and Crane's own, in the order of the file.
func focusColumns() []string {
	return []string{
		"BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory",
		"ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost",
		"InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ResourceId", "ResourceName",
		"ResourceType", "ServiceCategory", "ServiceName", "SubAccountId", "SubAccountName", "Tags",
		"x_PromisedSaving", "x_RealisedSaving", "x_AvailableSaving", "x_ObservedHours",
	}
}

// renderReportCSV writes a row for each namespace, and one for idle capacity. Nothing is billed by Crane, so BilledCost is 0; the other costs
// are the share in the price of the nodes.
func renderReportCSV(w io.Writer, r *monthlyReport) error {
	out := csv.NewWriter(w)
	columns := focusColumns()
	if err := out.Write(columns); err != nil {
		return err
	}

	for _, a := range r.accounts {
		// FOCUS wants each column in each row; the rows differ in name and amounts only.
		hours := decimal(a.Total().Hours)
		row := func(name, description string, cost float64) map[string]string {
			start := r.month.Format(time.RFC3339)
			end := r.month.AddDate(0, 1, 0).Format(time.RFC3339)
			return map[string]string{
				"BilledCost": "0", "ContractedCost": decimal(cost), "EffectiveCost": decimal(cost), "ListCost": decimal(cost),
				"BillingAccountId": r.cluster, "BillingAccountName": r.server, "BillingCurrency": a.Currency,
				"BillingPeriodStart": start, "BillingPeriodEnd": end, "ChargePeriodStart": start, "ChargePeriodEnd": end,
				"ChargeCategory": "Usage", "ChargeDescription": description, "ChargeFrequency": "Usage-Based",
				"PricingQuantity": hours, "PricingUnit": "Hours", "x_ObservedHours": hours,
				"InvoiceIssuerName": "Crane", "ProviderName": "Crane", "PublisherName": "Crane",
				"ServiceCategory": "Compute", "ServiceName": "Kubernetes",
				"ResourceId": r.cluster + "/" + name, "ResourceName": name,
			}
		}

		for _, name := range namespacesByCost(a) {
			amounts := a.Namespaces[name]
			line := row(name, "Requests of namespace "+name, amounts.Cost)

			tags, err := json.Marshal(map[string]string{"namespace": name})
			if err != nil {
				return err
			}

			maps.Copy(line, map[string]string{
				"ResourceType": "Namespace", "SubAccountId": r.cluster + "/" + name, "SubAccountName": name, "Tags": string(tags),
				"x_PromisedSaving": decimal(amounts.Promised), "x_RealisedSaving": decimal(amounts.Realized), "x_AvailableSaving": decimal(amounts.Available),
			})

			if err := writeColumns(out, columns, line); err != nil {
				return err
			}
		}

		line := row(idleRow, "Capacity of nodes that no pod requests", a.Idle())
		line["ResourceType"] = "Idle capacity"
		if err := writeColumns(out, columns, line); err != nil {
			return err
		}
	}

	out.Flush()
	return out.Error()
}

func writeColumns(out *csv.Writer, columns []string, line map[string]string) error {
	cells := make([]string, len(columns))
	for i, name := range columns {
		cells[i] = line[name]
	}

	return out.Write(texttable.EscapeCells(cells))
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', 6, 64) }
