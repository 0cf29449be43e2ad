// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricstore

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"testing"
	"time"

	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/test/integration/harness"
)

// VictoriaMetrics runs an installed victoria-metrics with a history until the test ends and returns its URL.
func VictoriaMetrics(t testing.TB, grid promserver.Grid, series []promserver.Series, flags ...string) string {
	t.Helper()

	program := Program(t, "victoria-metrics")
	address := harness.FreeAddress(t)
	url := "http://" + address
	start(t, program, append([]string{"-storageDataPath=" + t.TempDir(), "-retentionPeriod=100y", "-httpListenAddr=" + address}, flags...)...)
	await(t, url+"/health", "")

	for _, entry := range series {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/v1/import", bytes.NewReader(importLine(t, grid, entry)))
		if err != nil {
			t.Fatal(err)
		}

		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}

		if err := response.Body.Close(); err != nil || response.StatusCode >= http.StatusMultipleChoices {
			t.Fatalf("import of %s: %s, %v, want success", entry.Labels, response.Status, err)
		}
	}

	if _, err := harness.Get(t.Context(), url+"/internal/force_flush"); err != nil { // Samples are searchable after a flush.
		t.Fatal(err)
	}

	return url
}

// VictoriaMetricsWithDefaults is VictoriaMetrics as a Start.
func VictoriaMetricsWithDefaults(t testing.TB, grid promserver.Grid, series []promserver.Series) string {
	t.Helper()
	return VictoriaMetrics(t, grid, series)
}

var _ Start = VictoriaMetricsWithDefaults

// importLine returns a series in the import format of VictoriaMetrics.
func importLine(t testing.TB, grid promserver.Grid, series promserver.Series) []byte {
	t.Helper()

	values := make([]float64, grid.Len())
	series.Fill(values, 0)
	line := struct {
		Metric     map[string]string `json:"metric"`
		Values     []float64         `json:"values"`
		Timestamps []int64           `json:"timestamps"`
	}{Metric: series.Labels.Map()}

	for i, v := range values {
		if !math.IsNaN(v) {
			line.Values = append(line.Values, v)
			line.Timestamps = append(line.Timestamps, grid.Start.Add(time.Duration(i)*grid.Step).UnixMilli())
		}
	}

	out, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}

	return out
}
