// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"crane.io/crane/internal/component/configfile"
	"crane.io/crane/internal/metrics/promadapter"
)

// TestRulesWithoutEffect checks that the adapter names each rule that defines no metric.
func TestRulesWithoutEffect(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := newAdapterMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}

	ineffective := []promadapter.IneffectiveRule{{Rule: "rules[2]", Reason: promadapter.ReasonRefused}, {Rule: "externalRules[0]", Reason: promadapter.ReasonNoSeries}}
	err = m.registerRules(func() configfile.State { return configfile.State{} }, func() []promadapter.IneffectiveRule { return ineffective })
	if err != nil {
		t.Fatal(err)
	}

	const name = "crane_metric_adapter_rule_without_effect"

	want := "# HELP " + name + " 1 for each rule that defines no metric, by the reason: refused where it is invalid, not_listed where the server refuses its seriesQuery or it finds more than 10,000 names, no_series where it finds none, no_match where its filters and name leave none.\n" +
		"# TYPE " + name + " gauge\n" + name + "{reason=\"no_series\",rule=\"externalRules[0]\"} 1\n" + name + "{reason=\"refused\",rule=\"rules[2]\"} 1\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}
