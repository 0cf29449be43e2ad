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
)

// VictoriaMetrics runs an installed victoria-metrics with a history until the test ends and returns its URL.
func VictoriaMetrics(t testing.TB, grid promserver.Grid, series []promserver.Series, flags ...string) string {
	t.Helper()
	program, address := Program(t, "victoria-metrics"), freeAddress(t)
	url := "http://" + address
	start(t, program, append([]string{"-storageDataPath=" + t.TempDir(), "-retentionPeriod=100y", "-httpListenAddr=" + address}, flags...)...)
	await(t, url+"/health", "")
	send := func(method, path string, body []byte) {
		if _, err := request(t.Context(), method, url+path, bytes.NewReader(body)); err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range series {
		send(http.MethodPost, "/api/v1/import", importLine(t, grid, one))
	}
	send(http.MethodGet, "/internal/force_flush", nil) // Samples are searchable after a flush.
	return url
}

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
