// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"encoding/csv"
	"reflect"
	"strings"
	"testing"

	"crane.io/crane/internal/dashboard/contract"
)

// TestRowsCSV_Formulas checks that no text of a row is a formula for a spreadsheet: tenants choose the type and the kind of the target of their
// Recommendations, and these have no pattern.
func TestRowsCSV_Formulas(t *testing.T) {
	const formula = `=HYPERLINK("http://example.com")`
	var row contract.Row
	for _, f := range reflect.ValueOf(&row).Elem().Fields() {
		if f.Kind() == reflect.String {
			f.SetString(formula)
		}
	}

	content, err := rowsCSV([]contract.Row{row}, formula)
	if err != nil {
		t.Fatalf("rowsCSV() = %v, want no error", err)
	}

	lines, err := csv.NewReader(strings.NewReader(string(content))).ReadAll()
	if err != nil || len(lines) != 2 {
		t.Fatalf("rowsCSV() = %q, %v, want a header and a row", content, err)
	}

	texts := 0
	for i, cell := range lines[1] {
		if strings.HasPrefix(cell, "=") {
			t.Errorf("column %s is %q, want no formula", lines[0][i], cell)
		}
		if strings.Contains(cell, formula) {
			texts++
		}
	}

	if texts < 8 {
		t.Errorf("rowsCSV() wrote %d texts, want 8 or more: %q", texts, lines[1])
	}
}
