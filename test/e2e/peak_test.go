// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestPeakDemo: replicas rise before the load does, with the real HPA controller and the real metric adapter.
//
// The scenario is that of the demo with more time: the load rises eight minutes after the end of the history, and pods
// are configured to start so slowly that this is forecast from the beginning. The test ends when the replicas have
// risen, and a slow machine has minutes to spare.
func TestPeakDemo(t *testing.T) {
	s := start(t, "--keep", "--demo", patientPeak(t), "--nodes", "2", "--workloads", "1", "--days", "8",
		"--only", "apiserver,controller-manager,scheduler,prometheus,craned,metric-adapter")
	const low, high = 200, 500
	var load float64

	eventually(t, "replicas above what the load needs", func() error {
		text := s.kubectl(t, "get", "deployment", "storefront", "-n", "shop", "-o", "jsonpath={.spec.replicas}")
		replicas, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}

		now := time.Now().Truncate(time.Minute)
		if load, err = newest(t, s, now); err != nil {
			return err
		}

		// A pod serves 100 requests a second, so 5 pods almost serve the high load.
		if replicas < 5 {
			return fmt.Errorf("%d replicas for a load of %.0f: %s", replicas, load,
				s.kubectl(t, "get", "ehpa", "storefront", "-n", "shop", "-o", "jsonpath={.status.why} {.status.conditions[?(@.type==\"PredictionReady\")].message}"))
		}

		return nil
	})

	if load > low {
		t.Fatalf("the replicas have risen at a load of %.0f, want the rise before %d", load, low)
	}

	// The rise was forecast: at this time of the last period the load was about to rise.
	now := time.Now().Truncate(time.Minute)

	before := rangeOf(t, s.prometheus, "shop_requests_per_second", now.Add(-6*time.Hour), now.Add(20*time.Minute-6*time.Hour))
	highest := 0.0
	for _, v := range before {
		highest = max(highest, v)
	}

	if highest < high {
		t.Errorf("a period ago the load was %.0f at most in the next 20 minutes, want %d or more", highest, high)
	}
	if winner := s.kubectl(t, "get", "ehpa", "storefront", "-n", "shop", "-o", "jsonpath={.spec.metrics[0].type} {.status.autoscaler}"); winner != "External HorizontalPodAutoscaler/ehpa-storefront" {
		t.Errorf("scaled by %q, want the External metric of ehpa-storefront", winner)
	}

	why := s.kubectl(t, "get", "tsp", "ehpa-storefront", "-n", "shop", "-o", "jsonpath={.status.predictionMetrics[0].scaling.use} {.status.predictionMetrics[0].scaling.why}")
	if !strings.HasPrefix(why, "true on the past days the ") {
		t.Errorf("explanation %q, want a use based on the past days", why)
	}

	served := s.kubectl(t, "get", "--raw", "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/crane_autoscaling_prediction?labelSelector="+
		"targetKind%3DDeployment,targetName%3Dstorefront,targetNamespace%3Dshop,resourceIdentifier%3Dexternal.shop_requests_per_second")
	if !strings.Contains(served, `"metricName":"crane_autoscaling_prediction"`) {
		t.Errorf("the adapter serves %s, want crane_autoscaling_prediction", served)
	}

	s.interrupt(t)
}

// newest returns the highest load of the last minutes.
func newest(t *testing.T, s *session, now time.Time) (float64, error) {
	t.Helper()

	values := rangeOf(t, s.prometheus, "shop_requests_per_second", now.Add(-time.Minute), now.Add(time.Minute))
	if len(values) == 0 {
		return 0, errors.New("the load has no samples")
	}

	highest := 0.0
	for _, v := range values {
		highest = max(highest, v)
	}

	return highest, nil
}

// patientPeak returns the demo's scenario without printed commands and with more time.
func patientPeak(t *testing.T) string {
	t.Helper()

	content, err := os.ReadFile("../../internal/testbed/playground/demo/demos/peak.yaml")
	if err != nil {
		t.Fatal(err)
	}

	text, _, found := strings.Cut(string(content), "- at: 1s\n")
	for was, is := range map[string]string{
		"riseAfter: 150s\n":                      "riseAfter: 8m\n",
		"autoscaling.crane.io/pod-startup: 20s}": "autoscaling.crane.io/pod-startup: 12m}",
	} {
		if !strings.Contains(text, was) {
			t.Fatalf("the demo has no %q, want it", was)
		}

		text = strings.Replace(text, was, is, 1)
	}

	if !found {
		t.Fatal("the demo has no second step, want one")
	}

	path := filepath.Join(t.TempDir(), "peak.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}
