// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prediction_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/test/integration/harness"
)

// timeout bounds every wait. Awaited changes take seconds on an idle machine.
const timeout = 2 * time.Minute

// eventually polls until check returns nil.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	harness.Eventually(t.Context(), t, timeout, what, check)
}

// newClient returns an uncached administrator client.
func newClient(t *testing.T) client.Client {
	t.Helper()

	c, err := harness.NewClient(control.Config(), predictionv1alpha1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// counter counts range queries, those longer than a day separately, and the most that ran at the same time.
type counter struct {
	mu                sync.Mutex
	histories, ranges int
	running, most     int
}

func (c *counter) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/query_range" {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			copied := r.Clone(r.Context())
			copied.Body = io.NopCloser(bytes.NewReader(body))
			_ = copied.ParseForm()
			var from, to float64
			_, _ = fmt.Sscan(copied.Form.Get("start"), &from)
			_, _ = fmt.Sscan(copied.Form.Get("end"), &to)
			c.mu.Lock()

			c.ranges++
			if to-from > 24*3600 {
				c.histories++
			}

			c.running++
			c.most = max(c.most, c.running)
			c.mu.Unlock()
			defer func() {
				c.mu.Lock()
				c.running--
				c.mu.Unlock()
			}()
		}

		next.ServeHTTP(w, r)
	})
}

func (c *counter) counts() (histories, ranges int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.histories, c.ranges
}

// reset starts over and returns what was counted and the most that ran at the same time.
func (c *counter) reset() (histories, ranges, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	histories = c.histories
	ranges = c.ranges
	most = c.most
	c.histories = 0
	c.ranges = 0
	c.most = c.running

	return histories, ranges, most
}

// servePrometheus opens a server on a copy of the shared history and counts its range queries.
func servePrometheus(t *testing.T) (*promserver.Server, *counter) {
	t.Helper()
	queries := &counter{}
	return harness.ServeHistory(t, history, promserver.Options{Middleware: queries.wrap}), queries
}

// startCraned runs craned with only its prediction controllers.
func startCraned(t *testing.T, prometheusURL string, flags ...string) *harness.Craned {
	t.Helper()

	return harness.StartCraned(t, timeout, control, binary, prometheusURL, append([]string{
		"--controllers=timeseriesprediction,clusternodeprediction", "--feature-gates=ClusterNodePrediction=true",
		"--prediction-update-frequency-duration=1s", "--prediction-refresh-interval=2s",
	}, flags...)...)
}

// cpuOf returns a prediction of the CPU of a Deployment, an hour ahead.
func cpuOf(name, target string, algorithm predictionv1alpha1.AlgorithmType) *predictionv1alpha1.TimeSeriesPrediction {
	cpu := corev1.ResourceCPU
	return &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: predictionv1alpha1.TimeSeriesPredictionSpec{
			TargetRef:               &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: target},
			PredictionWindowSeconds: 3600,
			PredictionMetrics: []predictionv1alpha1.PredictionMetric{{
				ResourceIdentifier: "resource.cpu", Type: predictionv1alpha1.ResourceQueryMetricType, ResourceQuery: &cpu,
				Algorithm: predictionv1alpha1.Algorithm{AlgorithmType: algorithm},
			}},
		},
	}
}

// await waits for a condition of a prediction and returns the object.
func await(t *testing.T, c client.Client, key client.ObjectKey, kind string, status metav1.ConditionStatus, reason string) *predictionv1alpha1.TimeSeriesPrediction {
	t.Helper()

	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	eventually(t, fmt.Sprintf("%s %s=%s/%s", key.Name, kind, status, reason), func(ctx context.Context) error {
		if err := c.Get(ctx, key, tsp); err != nil {
			return err
		}

		got := meta.FindStatusCondition(tsp.Status.Conditions, kind)
		if got == nil || got.Status != status || got.Reason != reason || got.ObservedGeneration != tsp.Generation {
			return fmt.Errorf("condition %+v", got)
		}

		return nil
	})

	return tsp
}

func message(tsp *predictionv1alpha1.TimeSeriesPrediction, kind string) string {
	if c := meta.FindStatusCondition(tsp.Status.Conditions, kind); c != nil {
		return c.Message
	}

	return ""
}
