// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"crane.io/crane/internal/recommendation/savingsrecord"
	"crane.io/crane/pkg/savings"
)

// savingsConfigMap returns a record of November 2026 that begins on the 2nd at 0:00, with a gap of 3 hours, and ends on the 3rd at 0:00.
func savingsConfigMap(t *testing.T) *corev1.ConfigMap {
	t.Helper()

	r := &savings.Record{}
	start := time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	for i := range 25 {
		if i == 12 || i == 13 {
			continue
		}

		err := r.Add(start.Add(time.Duration(i)*time.Hour), 90*time.Minute, savings.Sample{
			Currency: "EUR", Cluster: 10, Unknown: 2,
			Namespaces: map[string]savings.Amounts{"shop": {Cost: 6, Promised: 2, Realized: 1.5}, "a|b<i>": {Cost: 1, Promised: -1, Realized: -1, Available: 0.5}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}

	data["2026-10"] = "unreadable"
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: savingsrecord.ConfigMapName}, Data: data}
}

func readMonth(t *testing.T, o reportOptions, month string, objects ...client.Object) (*monthlyReport, []error, error) {
	t.Helper()

	at, err := savings.ParseMonth(month)
	if err != nil {
		t.Fatal(err)
	}

	o.cranedNamespace = "crane-system"
	c := fake.NewClientBuilder().WithObjects(objects...).WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "id"}}).Build()
	var warnings []error
	r, err := o.read(t.Context(), c, at, func(err error) { warnings = append(warnings, err) })

	return r, warnings, err
}

// TestMonthlyReport checks each format: amounts, and that what was not observed is printed as such.
func TestMonthlyReport(t *testing.T) {
	r, warnings, err := readMonth(t, reportOptions{}, "2026-11", savingsConfigMap(t))
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "key 2026-10") {
		t.Fatalf("reading a month beside a damaged one: %v, warnings %v, want 1 of key 2026-10", err, warnings)
	}

	text := func(render func(*bytes.Buffer) error) string {
		var b bytes.Buffer
		if err := render(&b); err != nil {
			t.Fatal(err)
		}

		return b.String()
	}

	for name, page := range map[string]string{
		"table":    text(func(b *bytes.Buffer) error { return renderReportTable(b, r) }),
		"markdown": text(func(b *bytes.Buffer) error { return renderReportMarkdown(b, r) }),
		"html":     text(func(b *bytes.Buffer) error { return renderReportHTML(b, r) }),
	} {
		for _, want := range []string{
			"Savings of November 2026", "EUR", "126.00", "42.00", "31.50", "75%", "210.00", "63.00",
			"Observed: 21.0 of 48.0 hours until 2026-11-03T00:00:00Z.", "Not known: 27.0 hours", "up to 2 adopted workloads",
		} {
			if !strings.Contains(page, want) {
				t.Errorf("%s lacks %q:\n%s", name, want, page)
			}
		}

		if name == "html" && strings.Contains(page, "<i>") || name == "markdown" && !strings.Contains(page, `a\|b`) {
			t.Errorf("%s does not escape names, want no markup:\n%s", name, page)
		}
	}

	var got jsonMonthlyReport
	if err := json.Unmarshal([]byte(text(func(b *bytes.Buffer) error { return renderReportJSON(b, r) })), &got); err != nil {
		t.Fatal(err)
	}

	if got.Schema != reportSchema || got.ObservedHours != 21 || got.ElapsedHours != 48 || got.Accounts[0].Namespaces["shop"].Realized != 31.5 {
		t.Errorf("JSON of the report = %+v, want 21 of 48 hours and 31.5 realized in shop", got)
	}
}

// TestMonthlyReportFOCUS: the costs of all rows are the price of the nodes, required columns have values, and idle capacity has no saving.
func TestMonthlyReportFOCUS(t *testing.T) {
	r, _, err := readMonth(t, reportOptions{output: outputCSV}, "2026-11", savingsConfigMap(t))
	if err != nil {
		t.Fatal(err)
	}

	var b bytes.Buffer
	if err := renderReportCSV(&b, r); err != nil {
		t.Fatal(err)
	}

	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}

	column := func(row []string, name string) string { return row[slices.Index(rows[0], name)] }
	sum := 0.0
	for _, row := range rows[1:] {
		cost, err := strconv.ParseFloat(column(row, "EffectiveCost"), 64)
		if err != nil {
			t.Fatal(err)
		}

		sum += cost
		for name, want := range map[string]string{
			"BilledCost": "0", "BillingAccountId": "id", "BillingCurrency": "EUR", "ChargeCategory": "Usage", "ListCost": column(row, "ContractedCost"),
			"ChargePeriodStart": "2026-11-01T00:00:00Z", "ChargePeriodEnd": "2026-12-01T00:00:00Z", "x_ObservedHours": "21.000000",
		} {
			if got := column(row, name); got != want {
				t.Errorf("%s of %s: %q, want %q", name, column(row, "ResourceName"), got, want)
			}
		}
	}

	if math.Abs(sum-210) > 1e-6 || len(rows) != 4 {
		t.Errorf("%d rows cost %v, want 4 that cost 210", len(rows), sum)
	}
	if shop := rows[1]; column(shop, "ResourceName") != "shop" || column(shop, "x_RealisedSaving") != "31.500000" || column(shop, "Tags") != `{"namespace":"shop"}` {
		t.Errorf("row of shop = %q, want a realized saving of 31.5 and the tag of the namespace", shop)
	}
	if idle := rows[3]; column(idle, "ResourceName") != idleRow || column(idle, "x_RealisedSaving") != "" || column(idle, "EffectiveCost") != "63.000000" {
		t.Errorf("row of idle capacity = %q, want a cost of 63 without a saving", idle)
	}
}

// TestMonthlyReportErrors: a month without a record is not a month without savings.
func TestMonthlyReportErrors(t *testing.T) {
	for name, test := range map[string]struct {
		month   string
		objects []client.Object
		code    int
		want    string
	}{
		"no record":  {"2026-11", nil, exitNoResult, "no ConfigMap crane-system/crane-savings"},
		"no month":   {"2026-09", []client.Object{savingsConfigMap(t)}, exitFailure, "key 2026-10"},
		"unreadable": {"2026-10", []client.Object{savingsConfigMap(t)}, exitFailure, "correct or delete the key"},
	} {
		_, _, err := readMonth(t, reportOptions{}, test.month, test.objects...)
		var coded *exitError
		code := exitFailure
		if errors.As(err, &coded) {
			code = coded.code
		}
		if err == nil || code != test.code || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want exit code %d and %q", name, err, test.code, test.want)
		}
	}

	for _, args := range [][]string{{"--month", "November"}, {"-o", "pdf"}, {"more"}} {
		if code, _, errOut := runCrane(t, append([]string{"report"}, args...)...); code != exitUsage {
			t.Errorf("report %v: exit %d, want %d: %s", args, code, exitUsage, errOut)
		}
	}
}
