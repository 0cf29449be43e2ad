// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prediction_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"crane.io/crane/internal/prediction/predictor"
	"crane.io/crane/test/integration/harness"
)

const (
	failoverObjects = 60
	// failoverSeries is the number of workloads of these objects.
	failoverSeries = 3
	// historyQueries is the most queries of the histories of failoverSeries: two each, because one exceeds the points of a query.
	historyQueries = 2 * failoverSeries
)

// startReplica runs craned with leader election. It reads new samples once an hour, so that the queries after a failover are those of the
// new leader's start.
func startReplica(t *testing.T, prometheusURL string, flags ...string) *harness.Craned {
	t.Helper()

	return startCraned(t, prometheusURL, append([]string{
		"--leader-elect=true", "--lease-duration=20s", "--lease-renew-period=18s", "--lease-retry-period=1s",
		"--prediction-refresh-interval=1h",
	}, flags...)...)
}

// awaitModels waits until a replica leads and has the models of all series, of which this many come from checkpoints.
func awaitModels(t *testing.T, p *harness.Craned, restored int) {
	t.Helper()

	eventually(t, "the replica leads and has all models", func(ctx context.Context) error {
		for series, want := range map[string]float64{
			"crane_leader": 1, "crane_predictor_models": failoverSeries, "crane_predictor_restored_total": float64(restored),
		} {
			if got, err := p.Metric(ctx, series); err != nil || got != want {
				return errors.Join(err, fmt.Errorf("%s is %v, want %v", series, got, want))
			}
		}

		return nil
	})
}

// awaitStandby waits until a replica is ready without leading.
func awaitStandby(t *testing.T, p *harness.Craned) {
	t.Helper()

	eventually(t, "the replica is on standby", func(ctx context.Context) error {
		if _, err := harness.Get(ctx, p.HealthURL+"/readyz"); err != nil {
			return err
		}

		if got, err := p.Metric(ctx, "crane_leader"); err != nil || got != 0 {
			return errors.Join(err, fmt.Errorf("crane_leader is %v", got))
		}

		return nil
	})
}

// TestFailover checks what a new leader reads from Prometheus after the leader was killed. With a volume that both replicas mount it restores
// the models and reads no history. Without one it reads each history once, however many objects share it, with at most as many queries at the
// same time as there are workers. A standby sends no query.
func TestFailover(t *testing.T) {
	for name, volume := range map[string]bool{"with a volume": true, "without a volume": false} {
		t.Run(name, func(t *testing.T) {
			prometheus, asked := servePrometheus(t)
			c := newClient(t)
			targets := []string{"periodic", "noisy", "new"}
			for i := range failoverObjects {
				harness.Create(t, c, cpuOf(fmt.Sprintf("failover-%d", i), targets[i%failoverSeries], ""))
			}

			state := t.TempDir()
			start := func() *harness.Craned {
				t.Helper()

				dir := state
				if !volume { // An emptyDir belongs to one pod.
					dir = t.TempDir()
				}

				return startReplica(t, prometheus.URL(), "--prediction-state-dir="+dir)
			}

			leader := start()
			awaitModels(t, leader, 0)
			awaitReady(t, c, failoverObjects, timeout)

			if volume {
				// A leader writes checkpoints each half hour and when it stops. These are from a stop, and the next leader is killed.
				leader.Stop(t)
				leader = start()
				awaitModels(t, leader, failoverSeries)
			}

			asked.reset()
			standby := start()
			awaitStandby(t, standby)

			// A leader that restored its models may still read the samples since.
			if _, ranges, _ := asked.reset(); ranges != 0 && !volume {
				t.Errorf("the standby sent %d queries, want none", ranges)
			}

			killed := time.Now()
			leader.Kill()

			want := historyQueries
			restored := 0
			if volume {
				want = 0
				restored = failoverSeries
			}

			awaitModels(t, standby, restored)
			t.Logf("all models %s after the kill", time.Since(killed).Round(100*time.Millisecond))
			awaitReady(t, c, failoverObjects, timeout)
			histories, ranges, most := asked.reset()
			t.Logf("the new leader sent %d queries of histories, %d others, at most %d at the same time", histories, ranges-histories, most)

			if histories > want || !volume && histories == 0 {
				t.Errorf("the new leader sent %d queries of histories, want at most %d", histories, want)
			}
			// Beside histories each series is read once, for the samples since the checkpoint.
			if other := ranges - histories; other > failoverSeries {
				t.Errorf("the new leader sent %d other queries, want at most %d", other, failoverSeries)
			}
			if workers := predictor.DefaultConfig().Workers; most > workers {
				t.Errorf("%d queries at the same time, want at most %d", most, workers)
			}

			if files, err := os.ReadDir(state); volume && (err != nil || len(files) != failoverSeries) {
				t.Errorf("the volume has %d checkpoints, %v, want %d", len(files), err, failoverSeries)
			}
		})
	}
}
