// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus_test

import (
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"crane.io/crane/internal/metrics/prometheus"
)

// TestVectorLeavesNothingOut checks that Instant omits values that are not finite and Vector returns them.
func TestVectorLeavesNothingOut(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[
			{"metric":{"instance":"a"},"value":[1700000000,"NaN"]},
			{"metric":{"instance":"b"},"value":[1700000000,"+Inf"]},
			{"metric":{"instance":"c"},"value":[1700000000,"-1"]}]}}`))
	}))

	t.Cleanup(server.Close)
	cfg := prometheus.DefaultConfig()

	cfg.Address = server.URL
	source, err := prometheus.New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	got, err := source.Vector(t.Context(), "x", time.Unix(1700000000, 0))
	if err != nil || len(got) != 3 || !math.IsNaN(got[0].Value) || !math.IsInf(got[1].Value, 1) || got[2].Value != -1 {
		t.Errorf("Vector = %v, %v, want NaN, +Inf and -1", got, err)
	}
	if got[2].Labels["instance"] != "c" || !got[2].Time.Equal(time.Unix(1700000000, 0)) {
		t.Errorf("Vector: third sample %v, want instance c at 1700000000", got[2])
	}
}
