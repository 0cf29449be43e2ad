// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/test/metricstore"
	"crane.io/crane/test/nightly"
)

// TestRulesOnVictoriaMetrics checks that an installed victoria-metrics, with the defaults that its users have, serves the metrics of rules.
func TestRulesOnVictoriaMetrics(t *testing.T) {
	testRulesOn(t, metricstore.VictoriaMetricsWithDefaults)
}

// TestRulesOnThanos checks that a querier of Thanos serves the metrics of rules.
func TestRulesOnThanos(t *testing.T) {
	testRulesOn(t, metricstore.ThanosQuerier)
}

// TestRulesOnMimir checks that Mimir serves the metrics of rules to its tenant.
func TestRulesOnMimir(t *testing.T) {
	nightly.Only(t)
	testRulesOn(t, metricstore.Mimir, metricstore.TenantFlag)
}

// testRulesOn checks that the adapter lists the series of a store and evaluates custom and external metrics.
func testRulesOn(t *testing.T, startStore metricstore.Start, flags ...string) {
	t.Helper()

	ns := namespaceFor(t)
	now := time.Now().Truncate(time.Second)
	grid := promserver.Grid{Start: now.Add(-10 * time.Minute), End: now.Add(30 * time.Minute), Step: 15 * time.Second}
	constant := func(v float64, pairs ...string) promserver.Series {
		return promserver.Series{Labels: labels.FromStrings(pairs...), Fill: func(dst []float64, _ int) {
			for i := range dst {
				dst[i] = v
			}
		}}
	}

	store := startStore(t, grid, []promserver.Series{
		constant(1.5, "__name__", "http_requests_total", "namespace", ns, "pod", "web-0"),
		constant(0.25, "__name__", "http_requests_total", "namespace", ns, "pod", "web-1"),
		constant(100, "__name__", "http_requests_total", "namespace", "elsewhere", "pod", "web-0"),
		constant(0.0625, "__name__", "queue_len_mail", "queue", "a"),
		constant(3, "__name__", "queue_len_mail", "queue", "b"),
	})

	createPod(t, ns, "web-0")
	createPod(t, ns, "web-1")

	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rulesText), 0o600); err != nil {
		t.Fatal(err)
	}

	start(t, append(flags, "--prometheus-adapter-config="+file, "--prometheus-address="+store, "--metrics-relist-interval=1s")...)
	eventually(t, "external metrics are served", func(ctx context.Context) error {
		values, err := readExternal(ctx, externalPath(ns, "queue_len_of_mail", ""))
		got := map[string]string{}
		for _, v := range values {
			got[v.MetricLabels["queue"]] = v.Value.String()
		}

		if fmt.Sprint(got) != "map[a:63m b:3]" {
			err = errors.Join(err, fmt.Errorf("got %v", got))
		}

		return err
	})

	eventually(t, "custom metrics of pods are served", func(ctx context.Context) error {
		values, err := readCustom(ctx, "/namespaces/"+ns+"/pods/*/http_requests_sum")
		got := map[string]string{}
		for _, v := range values {
			got[v.DescribedObject.Name] = v.Value.String()
		}

		if fmt.Sprint(got) != "map[web-0:1500m web-1:250m]" {
			err = errors.Join(err, fmt.Errorf("got %v", got))
		}

		return err
	})
}
