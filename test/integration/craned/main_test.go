// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package craned_test runs craned, as a process with the rights of config/rbac, against a real API server and a real
// Prometheus with eight days of history.
package craned_test

import (
	"context"
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
	// historyDays exceeds the 7 days that a recommendation needs.
	historyDays = 8
	scrape      = time.Minute
	mib         = 1 << 20
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
		Name: "craned", Command: "craned", Plane: controlplane.Options{Components: []controlplane.Component{controlplane.ControllerManager}},
		Before: func(ctx context.Context, dir string) error {
			history = filepath.Join(dir, "history")
			return writeHistory(ctx, history, historyPods())
		},
		Ready: func(_ context.Context, c *controlplane.ControlPlane, built string) error {
			control = c
			binary = built
			return nil
		},
	}))
}

// pod is a pod of the history with one container and its usage.
type pod struct {
	namespace, kind, owner, name, container string
	// cores and bytes are the constant usage in the last days.
	cores, bytes float64
	days         int
}

// historyPods returns the pods of the history, whose workloads the tests create.
func historyPods() []pod {
	const week = historyDays
	return []pod{
		{"shop", "Deployment", "web", "web-6d4cf56db6-aaaaa", "app", 0.2, 300 * mib, week},
		{"shop", "Deployment", "web", "web-6d4cf56db6-bbbbb", "app", 0.2, 300 * mib, week},
		{"shop", "StatefulSet", "db", "db-0", "postgres", 1.5, 2048 * mib, week},
		{"shop", "Deployment", "young", "young-5b8c7d9f4-ccccc", "app", 0.1, 100 * mib, 1},
		{"shop", "Deployment", "doomed", "doomed-7c9d8e5f6-ddddd", "app", 0.1, 100 * mib, week},
		{"shop", "GameSet", "arena", "arena-1", "server", 0.4, 400 * mib, week},
		{"bank", "Deployment", "web", "web-7f8c9b5d4c-eeeee", "app", 0.5, 500 * mib, week},
	}
}

// writeHistory writes the series that cAdvisor and kube-state-metrics export for the pods.
func writeHistory(ctx context.Context, dir string, pods []pod) error {
	// The series extend beyond the duration of the tests.
	end := time.Now().Truncate(scrape)
	grid := promserver.Grid{Start: end.Add(-historyDays * 24 * time.Hour), End: end.Add(time.Hour), Step: scrape}

	var all []promserver.Series
	owners := map[string]bool{}
	for _, p := range pods {
		first := int(time.Duration(historyDays-p.days) * 24 * time.Hour / scrape)
		add := func(value func(i int) float64, pairs ...string) {
			all = append(all, promserver.Series{Labels: labels.FromStrings(pairs...), Fill: func(dst []float64, at int) {
				for i := range dst {
					dst[i] = value(at + i)

					if at+i < first {
						dst[i] = nan()
					}
				}
			}})
		}

		one := func(int) float64 { return 1 }
		add(func(i int) float64 { return float64(i) * scrape.Seconds() * p.cores },
			"__name__", "container_cpu_usage_seconds_total", "namespace", p.namespace, "pod", p.name, "container", p.container, "image", "i")
		add(func(int) float64 { return p.bytes },
			"__name__", "container_memory_working_set_bytes", "namespace", p.namespace, "pod", p.name, "container", p.container, "image", "i")
		add(one, "__name__", "kube_pod_container_info", "namespace", p.namespace, "pod", p.name, "container", p.container)

		for resource, value := range map[string]float64{"cpu": 1, "memory": 1024 * mib} {
			add(func(int) float64 { return value }, "__name__", "kube_pod_container_resource_requests", "namespace", p.namespace,
				"pod", p.name, "container", p.container, "resource", resource, "unit", map[string]string{"cpu": "core", "memory": "byte"}[resource])
		}

		owner := p.owner
		if p.kind == "Deployment" {
			owner = p.name[:len(p.name)-len("-aaaaa")]
			if key := p.namespace + "/" + owner; !owners[key] {
				owners[key] = true
				add(one, "__name__", "kube_replicaset_owner", "namespace", p.namespace, "replicaset", owner,
					"owner_kind", p.kind, "owner_name", p.owner, "owner_is_controller", "true")
			}

			add(one, "__name__", "kube_pod_owner", "namespace", p.namespace, "pod", p.name,
				"owner_kind", "ReplicaSet", "owner_name", owner, "owner_is_controller", "true")
			continue
		}

		add(one, "__name__", "kube_pod_owner", "namespace", p.namespace, "pod", p.name,
			"owner_kind", p.kind, "owner_name", owner, "owner_is_controller", "true")
	}

	_, err := promserver.WriteBlocks(ctx, dir, grid, all)
	return err
}
