// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prediction_test tests TimeSeriesPredictions and ClusterNodePredictions in craned, as a process with the RBAC
// rules of config/, against a real API server and a real Prometheus.
package prediction_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/test/integration/harness"
)

const (
	historyDays = 15
	scrape      = time.Minute
)

// Shared by all tests, because the start takes longer than a test.
var (
	control *controlplane.ControlPlane
	// history is the directory of the history, written once; each test opens its own server on a copy.
	history string
	binary  string
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, harness.Suite{
		Name: "prediction", Command: "craned", Plane: controlplane.Options{Components: []controlplane.Component{controlplane.ControllerManager}},
		Before: func(ctx context.Context, dir string) error {
			history = filepath.Join(dir, "history")
			return writeHistory(ctx, history)
		},
		Ready: func(_ context.Context, c *controlplane.ControlPlane, built string) error {
			control = c
			binary = built
			return nil
		},
	}))
}

// wave returns a daily pattern with its peak at noon UTC, from 1 to 3 cores.
func wave(at time.Time) float64 {
	return 2 - math.Cos(2*math.Pi*float64(at.Unix()%86400)/86400)
}

// noise returns 0.5 to 1.5 cores without a pattern.
func noise(at time.Time) float64 {
	x := uint64(at.Unix()/60) * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	return 0.5 + float64(x>>40)/float64(1<<24)
}

// writer collects series on the grid of the history, which extends beyond the duration of the tests.
type writer struct {
	grid promserver.Grid
	all  []promserver.Series
}

func (w *writer) add(value func(at time.Time) float64, pairs ...string) {
	w.all = append(w.all, promserver.Series{Labels: labels.FromStrings(pairs...), Fill: func(dst []float64, first int) {
		for i := range dst {
			dst[i] = value(w.grid.Start.Add(time.Duration(first+i) * w.grid.Step))
		}
	}})
}

// pod adds a Deployment's pod with one container that uses cores since born.
func (w *writer) pod(namespace, name string, born time.Time, cores func(time.Time) float64) {
	set := name + "-6d4cf56db6"
	pod := name + "-6d4cf56db6-aaaaa"
	alive := func(v func(time.Time) float64) func(time.Time) float64 {
		return func(at time.Time) float64 {
			if at.Before(born) {
				return math.NaN()
			}

			return v(at)
		}
	}

	one := func(time.Time) float64 { return 1 }
	total := 0.0
	w.add(alive(func(at time.Time) float64 {
		total += cores(at) * w.grid.Step.Seconds()
		return total
	}), "__name__", "container_cpu_usage_seconds_total", "namespace", namespace, "pod", pod, "container", "app", "image", "i")

	w.add(alive(func(at time.Time) float64 { return 200e6 * (1 + cores(at)) }),
		"__name__", "container_memory_working_set_bytes", "namespace", namespace, "pod", pod, "container", "app", "image", "i")
	w.add(alive(one), "__name__", "kube_replicaset_owner", "namespace", namespace, "replicaset", set,
		"owner_kind", "Deployment", "owner_name", name, "owner_is_controller", "true")
	w.add(alive(one), "__name__", "kube_pod_owner", "namespace", namespace, "pod", pod,
		"owner_kind", "ReplicaSet", "owner_name", set, "owner_is_controller", "true")
}

// historyOf returns the history of workloads and nodes before an end.
func historyOf(end time.Time) *writer {
	w := &writer{grid: promserver.Grid{Start: end.Add(-historyDays * 24 * time.Hour), End: end.Add(time.Hour), Step: scrape}}
	w.pod("shop", "periodic", time.Time{}, wave)
	w.pod("shop", "noisy", time.Time{}, noise)
	w.pod("shop", "new", end.Add(-40*time.Minute), noise)

	for _, zone := range []string{"a", "b"} {
		w.add(func(at time.Time) float64 { return 100 * wave(at) }, "__name__", "http_requests", "zone", zone, "path", `/x"}`)
	}

	for _, node := range []string{"node-0", "node-1", "node-2"} {
		w.node(node)
	}

	return w
}

func writeHistory(ctx context.Context, dir string) error {
	end := time.Now().Truncate(scrape)
	w := historyOf(end)
	if _, err := promserver.WriteBlocks(ctx, dir, w.grid, w.all); err != nil {
		return err
	}

	// The targets of gocrane's examples, whose expressions have rates over a minute.
	w = &writer{grid: promserver.Grid{Start: end.Add(-4 * 24 * time.Hour), End: end.Add(time.Hour), Step: scrape / 3}}
	w.pod("default", "dep-1-100m-500mib", time.Time{}, wave)
	w.node("192.168.56.166")
	_, err := promserver.WriteBlocks(ctx, dir, w.grid, w.all)

	return err
}

// node adds the use of a node.
func (w *writer) node(name string) {
	idle := 0.0
	w.add(func(at time.Time) float64 {
		idle += (1 - wave(at)/4) * w.grid.Step.Seconds()
		return idle
	}, "__name__", "node_cpu_seconds_total", "instance", name+":9100", "mode", "idle", "cpu", "0")
	w.add(func(time.Time) float64 { return 8e9 }, "__name__", "node_memory_MemTotal_bytes", "instance", name+":9100")
	w.add(func(at time.Time) float64 { return 8e9 - 1e9*wave(at) }, "__name__", "node_memory_MemAvailable_bytes", "instance", name+":9100")
}
