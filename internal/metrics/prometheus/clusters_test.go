// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/testbed/promserver"
)

// deploymentPod adds a pod of Deployment web with its owners.
func (w *fixture) deploymentPod(namespace, pod string, cores float64, more ...string) {
	const replicaSet = "web-5d4f8c7b9d"
	w.cpu(namespace, pod, "app", constant(cores), more...)
	w.add(constant(1), append([]string{
		"__name__", podOwnerMetric, "namespace", namespace, "pod", pod, "owner_kind", "ReplicaSet", "owner_name", replicaSet, "owner_is_controller", "true",
	}, more...)...)
}

func (w *fixture) replicaSetOf(namespace string, when func(time.Time) float64, more ...string) {
	w.add(when, append([]string{
		"__name__", replicaSetOwnerMetric, "namespace", namespace, "replicaset", "web-5d4f8c7b9d", "owner_kind", "Deployment", "owner_name", "web",
		"owner_is_controller", "true",
	}, more...)...)
}

const (
	firstID  = "/kubepods.slice/kubepods-pod0a1b2c3d_0001_4000_8000_000000000001.slice/cri-1.scope"
	secondID = "/kubepods/burstable/pod0a1b2c3d-0002-4000-8000-000000000002/2"
)

// mixedSeries are series of several clusters in a namespace, and the label that separates them; empty where none does.
func mixedSeries() map[string]struct {
	add func(w *fixture, namespace string)
	// label is the one that is named; empty where none separates.
	label string
} {
	return map[string]struct {
		add func(w *fixture, namespace string)
		// label is the one that is named; empty where none separates.
		label string
	}{
		"a label cluster, no other identity": {label: "cluster", add: func(w *fixture, namespace string) {
			w.cpu(namespace, "db-0", "app", constant(0.2), "cluster", "eu")
			w.cpu(namespace, "db-0", "app", constant(0.2), "cluster", "us")
		}},
		"another label, other cgroups": {label: "region", add: func(w *fixture, namespace string) {
			w.cpu(namespace, "db-0", "app", constant(0.2), "region", "eu", "id", firstID, "node", "a")
			w.cpu(namespace, "db-0", "app", constant(0.2), "region", "us", "id", secondID, "node", "b")
		}},
		"another label, other counters": {label: "env", add: func(w *fixture, namespace string) {
			w.cpu(namespace, "db-0", "app", constant(0.2), "env", "prod")
			w.cpu(namespace, "db-0", "app", constant(2), "env", "dev")
		}},
		"a job of each cluster": {label: "job", add: func(w *fixture, namespace string) {
			w.cpu(namespace, "db-0", "app", constant(0.2), "job", "federate-a", "id", firstID)
			w.cpu(namespace, "db-0", "app", constant(0.2), "job", "federate-b", "id", secondID)
		}},
		"one cluster without the label": {label: "site", add: func(w *fixture, namespace string) {
			w.cpu(namespace, "db-0", "app", constant(0.2), "id", firstID)
			w.cpu(namespace, "db-0", "app", constant(0.2), "site", "us", "id", secondID)
		}},
		"no label": {add: func(w *fixture, namespace string) {
			w.cpu(namespace, "db-0", "app", constant(0.2), "instance", "10.0.0.1:10250", "id", firstID)
			w.cpu(namespace, "db-0", "app", constant(0.2), "instance", "10.1.0.1:10250", "id", secondID)
		}},
		"Deployments, of which no pods have the same name": {label: "dc", add: func(w *fixture, namespace string) {
			w.deploymentPod(namespace, "web-5d4f8c7b9d-bbbbb", 0.1, "dc", "a")
			w.deploymentPod(namespace, "web-5d4f8c7b9d-ccccc", 0.5, "dc", "b")
			w.replicaSetOf(namespace, constant(1), "dc", "a")
			w.replicaSetOf(namespace, constant(1), "dc", "b")
		}},
		"a label of clusters without kube-state-metrics": {label: "k8s_cluster", add: func(w *fixture, namespace string) {
			w.cpu(namespace, "web-5d4f8c7b9d-bbbbb", "app", constant(0.2), "k8s_cluster", "eu")
			w.cpu(namespace, "web-5d4f8c7b9d-ccccc", "app", constant(0.2), "k8s_cluster", "us")
		}},
		"a cluster that has moved away": {label: "cluster", add: func(w *fixture, namespace string) {
			w.cpu(namespace, "db-0", "app", constant(0.2), "cluster", "eu")
			w.cpu(namespace, "db-0", "app", between(w.grid.Start, w.grid.End.Add(-5*day), 0.2), "cluster", "us")
		}},
	}
}

// TestSeveralClustersAreRefused checks that series of several clusters in a namespace of the system stop all reads.
func TestSeveralClustersAreRefused(t *testing.T) {
	for name, c := range mixedSeries() {
		t.Run(name, func(t *testing.T) {
			w := newFixture(today.Add(-10*day), today)
			c.add(w, "kube-system")
			w.cpu("shop", "db-0", "app", constant(0.2))
			s := w.source(t, nil)

			err := s.CheckClusters(t.Context())
			var several *SeveralClustersError
			if !errors.As(err, &several) || several.Label != c.label {
				t.Fatalf("CheckClusters() = %v, want several clusters with the label %q", err, c.label)
			}

			for reader, err := range map[string]error{"Usage": readUsage(t.Context(), s), "Hourly": readHourly(t.Context(), s), "WorkloadUsage": readWorkload(t.Context(), s, "shop")} {
				if !errors.As(err, &several) {
					t.Errorf("%s: error %v, want several clusters", reader, err)
				}
				if public := metrics.PublicMessage(err); strings.Contains(public, "kube-system") || strings.Contains(public, "eu") {
					t.Errorf("%s: public message %q names objects of others", reader, public)
				}
			}

			if _, err := s.Inventory(t.Context(), nil); !errors.As(err, &several) {
				t.Errorf("Inventory: error %v, want several clusters", err)
			}
		})
	}
}

// TestHostileClusterLabel checks that series which look like those of several clusters stop the reads of their own namespace alone: who runs pods in
// a namespace can write them.
func TestHostileClusterLabel(t *testing.T) {
	for name, c := range mixedSeries() {
		t.Run(name, func(t *testing.T) {
			w := newFixture(today.Add(-10*day), today)
			c.add(w, "evil")
			w.cpu("shop", "db-0", "app", constant(0.2))
			w.owned(podOwnerMetric, "shop", "pod", "db-0", "StatefulSet", "db", constant(1))
			s := w.source(t, nil)

			if err := s.CheckClusters(t.Context()); err != nil {
				t.Errorf("CheckClusters() = %v, want no error for series of one tenant", err)
			}
			if err := readWorkload(t.Context(), s, "shop"); err != nil {
				t.Errorf("WorkloadUsage of another namespace: %v, want no error", err)
			}

			var several *SeveralClustersError
			if err := readWorkload(t.Context(), s, "evil"); !errors.As(err, &several) || several.Label != c.label {
				t.Errorf("WorkloadUsage of the namespace = %v, want several clusters with the label %q", err, c.label)
			}
			if err := readUsage(t.Context(), s, "evil"); !errors.As(err, &several) {
				t.Errorf("Usage of the namespace = %v, want several clusters", err)
			}

			request := metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-time.Hour), End: today, Step: time.Minute}
			for _, namespaces := range [][]string{nil, {"evil", "shop"}} {
				request.Namespaces = namespaces
				found := readAll(t, s, request)
				if len(found) != 1 {
					t.Errorf("Usage of namespaces %v has %d containers, want that of shop alone", namespaces, len(found))
				}
			}

			if workloads, err := s.Inventory(t.Context(), nil); err != nil || slices.ContainsFunc(workloads, func(w workload.Workload) bool { return w.Namespace == "evil" }) {
				t.Errorf("Inventory() = %v, %v, want no workload of the namespace", workloads, err)
			}
			if warnings := strings.Join(s.Stats().Warnings, "\n"); !strings.Contains(warnings, "namespace evil is left out") {
				t.Errorf("warnings %q, want that the namespace is left out", warnings)
			}
		})
	}
}

// TestManyMixedNamespaces checks that series of several clusters in many namespaces are those of the server.
func TestManyMixedNamespaces(t *testing.T) {
	w := newFixture(today.Add(-time.Hour), today)
	for i := range maxMixed + 1 {
		for _, cluster := range []string{"eu", "us"} {
			w.cpu(fmt.Sprintf("team-%d", i), "db-0", "app", constant(0.2), "cluster", cluster)
		}
	}

	var several *SeveralClustersError
	if err := w.source(t, nil).CheckClusters(t.Context()); !errors.As(err, &several) {
		t.Errorf("CheckClusters() of %d mixed namespaces = %v, want several clusters", maxMixed+1, err)
	}
}

func readUsage(ctx context.Context, s *Source, namespaces ...string) error {
	for _, err := range s.Capabilities().Usage.Usage(ctx, metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-time.Hour), End: today, Namespaces: namespaces}) {
		if err != nil {
			return err
		}
	}

	return nil
}

func readHourly(ctx context.Context, s *Source) error {
	_, err := s.Capabilities().Hourly.Hourly(ctx, metrics.HourlyRequest{Metric: metrics.ServiceAddresses, End: today, Hours: 2})
	return err
}

func readWorkload(ctx context.Context, s *Source, namespace string) error {
	_, err := s.Capabilities().Aggregates.WorkloadUsage(ctx, metrics.WorkloadsRequest{
		Resource: metrics.CPU, Namespace: namespace, Kind: "StatefulSet", Names: []string{"db"},
		Window: metrics.Window{Start: today.Add(-time.Hour), End: today, Step: time.Minute},
	})

	return err
}

func TestDuplicatesAreOneCluster(t *testing.T) {
	for name, add := range map[string]func(w *fixture){
		"replicas of Prometheus": func(w *fixture) {
			for _, replica := range []string{"a", "b"} {
				w.cpu("shop", "db-0", "app", constant(0.2), "prometheus_replica", replica)
				w.deploymentPod("shop", "web-5d4f8c7b9d-bbbbb", 0.1, "prometheus_replica", replica)
				w.replicaSetOf("shop", constant(1), "prometheus_replica", replica)
			}
		},
		"two jobs, of which one has a label cluster": func(w *fixture) {
			w.cpu("shop", "db-0", "app", constant(0.2), "job", "a", "id", firstID)
			w.cpu("shop", "db-0", "app", constant(0.2), "job", "b", "id", firstID, "cluster", "eu")
			w.deploymentPod("shop", "web-5d4f8c7b9d-bbbbb", 0.1)
			w.deploymentPod("shop", "web-5d4f8c7b9d-bbbbb", 0.1, "cluster", "eu")
		},
		"shards of kube-state-metrics": func(w *fixture) {
			w.deploymentPod("shop", "web-5d4f8c7b9d-bbbbb", 0.1, "shard", "0")
			w.deploymentPod("shop", "web-5d4f8c7b9d-ccccc", 0.1, "shard", "1")
			w.replicaSetOf("shop", constant(1), "shard", "0")
		},
		"a zone of each node": func(w *fixture) {
			w.cpu("shop", "web-5d4f8c7b9d-bbbbb", "app", constant(0.2), "zone", "a")
			w.cpu("shop", "web-5d4f8c7b9d-ccccc", "app", constant(0.9), "zone", "b")
		},
		"a pod that moved to another node": func(w *fixture) {
			moved := w.grid.End.Add(-10 * time.Minute)
			w.cpu("shop", "db-0", "app", between(w.grid.Start, moved.Add(9*time.Minute), 0.2), "id", firstID, "zone", "a")
			w.cpu("shop", "db-0", "app", between(moved, w.grid.End, 0.2), "id", secondID, "zone", "b")
		},
		"CPUs counted one by one": func(w *fixture) {
			w.counter(0.2, "__name__", cpuMetric, "namespace", "shop", "pod", "db-0", "container", "app", "cpu", "cpu00")
			w.counter(2, "__name__", cpuMetric, "namespace", "shop", "pod", "db-0", "container", "app", "cpu", "cpu01")
		},
		"one cluster in all labels": func(w *fixture) {
			w.cpu("shop", "db-0", "app", constant(0.2), "cluster", "eu")
			w.cpu("bank", "db-0", "app", constant(2), "cluster", "eu")
		},
		"clusters without a namespace in common": func(w *fixture) {
			w.cpu("shop", "db-0", "app", constant(0.2), "cluster", "eu")
			w.cpu("bank", "db-0", "app", constant(2), "cluster", "us")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(today.Add(-10*day), today)
			add(w)
			if err := w.source(t, nil).CheckClusters(t.Context()); err != nil {
				t.Errorf("CheckClusters() = %v, want no error", err)
			}
		})
	}
}

func TestMatcherSelectsOneCluster(t *testing.T) {
	w := newFixture(today.Add(-3*time.Hour), today)
	w.cpu("shop", "db-0", "app", constant(0.2), "cluster", "eu")
	w.cpu("shop", "db-0", "app", constant(2), "cluster", "us")
	s := w.source(t, func(c *Config) { c.Matchers = []Matcher{{Label: "cluster", Op: "=", Value: "eu"}} })

	if err := s.CheckClusters(t.Context()); err != nil {
		t.Errorf("CheckClusters() = %v, want no error for one cluster", err)
	}
	for key, usage := range readAll(t, s, metrics.UsageRequest{Resource: metrics.CPU, Start: w.grid.Start, End: w.grid.End, Step: time.Hour}) {
		if usage.Values[1] > 0.21 {
			t.Errorf("Usage of %v = %v, want that of cluster eu", key, usage.Values)
		}
	}
}

// TestClustersAreCheckedOnce checks that many readers cause one check.
func TestClustersAreCheckedOnce(t *testing.T) {
	w := newFixture(today.Add(-3*day), today)
	w.cpu("shop", "db-0", "app", constant(0.2))
	s := w.source(t, nil)
	if err := s.CheckClusters(t.Context()); err != nil {
		t.Fatal(err)
	}

	before := s.Stats().Queries
	if err := s.CheckClusters(t.Context()); err != nil || s.Stats().Queries != before || before != 3 {
		t.Errorf("CheckClusters() twice: %v, %d and then %d queries, want three and no more", err, before, s.Stats().Queries)
	}
}

// TestUnansweredClusterCheck checks that a server which refuses the questions is asked once per hour, that one which is out of order is asked
// again, and that several clusters that were found before remain.
func TestUnansweredClusterCheck(t *testing.T) {
	for _, c := range []struct {
		name          string
		status        int
		kind          string
		clusters      []string
		asked, failed bool
	}{
		{name: "refused", status: 422, kind: "execution", clusters: []string{"eu"}},
		{name: "out of order", status: 503, kind: "unavailable", clusters: []string{"eu"}, asked: true},
		{name: "refused after several clusters", status: 422, kind: "execution", clusters: []string{"eu", "us"}, failed: true},
		{name: "out of order after several clusters", status: 503, kind: "unavailable", clusters: []string{"eu", "us"}, asked: true, failed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFixture(today.Add(-3*day), today)
			for _, cluster := range c.clusters {
				w.cpu("kube-system", "db-0", "app", constant(0.2), "cluster", cluster)
			}

			var fails atomic.Bool
			var requests atomic.Int64
			server := w.serve(t, promserver.Options{Middleware: func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					requests.Add(1)
					if fails.Load() {
						answerWith(c.status, "application/json", fmt.Sprintf(`{"status":"error","errorType":%q,"error":"no"}`, c.kind))(rw, r)
						return
					}

					h.ServeHTTP(rw, r)
				})
			}})

			now := today
			s := newSource(t, server.URL(), func(cfg *Config) {
				cfg.Now = func() time.Time { return now }
				cfg.MaxAttempts = 1
			})
			if err := s.CheckClusters(t.Context()); (err != nil) != c.failed {
				t.Fatalf("CheckClusters() = %v, want an error: %t", err, c.failed)
			}

			fails.Store(true)
			now = today.Add(clusterCheckLifetime)
			for range 2 {
				if err := s.CheckClusters(t.Context()); (err != nil) != c.failed {
					t.Errorf("CheckClusters() of a server that fails = %v, want an error: %t", err, c.failed)
				}
			}

			before := requests.Load()
			if err := s.CheckClusters(t.Context()); (err != nil) != c.failed {
				t.Errorf("CheckClusters() of a server that fails = %v, want an error: %t", err, c.failed)
			}

			if asked := requests.Load() > before; asked != c.asked {
				t.Errorf("CheckClusters() after an answer of status %d sends a request: %t, want %t", c.status, asked, c.asked)
			}
		})
	}
}
