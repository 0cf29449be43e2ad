// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dirty

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"crane.io/crane/internal/testbed/promserver"
)

// ServerKind is a kind of fault of a whole server. Each is tried on a server of its own.
type ServerKind struct {
	Name    string
	Minimum float64
	damage  func(r *rand.Rand, all []*Series) []*Series
	// append adds to the running server what its blocks cannot have; nil for nothing.
	append func(ctx context.Context, server *promserver.Server, all []*Series) error
	// refusals are reasons of which one must be given if there is no number; without any there must be a number.
	refusals []string
	// matchers are those of a second run, which must give the clean answers; empty for no second run.
	matchers func(all []*Series) string
}

func serverKinds() []ServerKind {
	return []ServerKind{
		{Name: "two clusters", Minimum: 1, damage: twoClusters, refusals: []string{"several clusters"}, matchers: firstCluster},
		{Name: "renamed labels of cAdvisor", Minimum: 1, damage: renamed((*Series).isCadvisor), refusals: []string{"exported_namespace"}},
		{Name: "renamed labels of kube-state-metrics", Minimum: 1, damage: renamed(isState), refusals: []string{"exported_namespace"}},
		{Name: "no kube-state-metrics", Minimum: 1, damage: withoutState, refusals: []string{"kube_pod_container_info"}},
		{Name: "two replicas of everything", Minimum: 1, damage: replicasOfAll},
		{Name: "slow scrapes of one job for all", Minimum: 1, damage: twoIntervals},
		{Name: "native histograms", Minimum: 1, damage: undamaged, append: histograms},
	}
}

func isState(s *Series) bool { return strings.HasPrefix(s.name(), "kube_") }

// clusterLabels are names under which clusters are told apart.
func clusterLabels() []string {
	return []string{"cluster", "k8s_cluster", "cluster_name", "region", "dc"}
}

// labelOf returns the label that tells the clusters of some series apart.
func labelOf(all []*Series) string {
	for _, name := range clusterLabels() {
		if all[0].Labels[name] != "" {
			return name
		}
	}

	return ""
}

// twoClusters adds a second cluster with the same namespaces, workloads and, in part, pods, which needs a fifth.
func twoClusters(r *rand.Rand, all []*Series) []*Series {
	label := clusterLabels()[r.IntN(len(clusterLabels()))]
	var second []*Series
	for _, s := range all {
		other := s.clone(label, "us")
		if id := other.Labels["id"]; id != "" {
			other.Labels["id"] = id + "-us"
		}
		if uid := other.Labels["uid"]; uid != "" {
			other.Labels["uid"] = uid + "-us"
		}
		if pod := other.Labels["pod"]; strings.Count(pod, "-") == 2 {
			other.Labels["pod"] = strings.TrimSuffix(pod, pod[len(pod)-2:]) + "zz"
		}

		for m := range other.Values {
			if s.isCadvisor() {
				other.Values[m] *= 5
			}
		}

		s.Labels[label] = "eu"
		second = append(second, other)
	}

	return append(all, second...)
}

func firstCluster(all []*Series) string { return labelOf(all) + "=eu" }

// renamed moves the namespace and pod of series to labels with the prefix that Prometheus uses where the target has labels of these
// names.
func renamed(affected func(*Series) bool) func(*rand.Rand, []*Series) []*Series {
	return func(_ *rand.Rand, all []*Series) []*Series {
		for _, s := range all {
			if !affected(s) || s.Labels["namespace"] == "" {
				continue
			}

			s.Labels["exported_namespace"] = s.Labels["namespace"]
			s.Labels["namespace"] = "monitoring"
			if isState(s) && s.Labels["pod"] != "" {
				s.Labels["exported_pod"] = s.Labels["pod"]
				s.Labels["pod"] = "kube-state-metrics-0"
			}
			if isState(s) && s.Labels["container"] != "" {
				s.Labels["exported_container"] = s.Labels["container"]
				s.Labels["container"] = "kube-state-metrics"
			}
		}

		return all
	}
}

func withoutState(_ *rand.Rand, all []*Series) []*Series {
	var out []*Series
	for _, s := range all {
		if !isState(s) {
			out = append(out, s)
		}
	}

	return out
}

func replicasOfAll(r *rand.Rand, all []*Series) []*Series { return replica(r, nil, all, "") }

func twoIntervals(r *rand.Rand, all []*Series) []*Series { return twoJobs(r, nil, all, "") }

func undamaged(_ *rand.Rand, all []*Series) []*Series { return all }

// histograms appends a native histogram with the name and the labels of each series of cAdvisor but for the job, as an application that
// reuses the name exports it.
func histograms(ctx context.Context, server *promserver.Server, all []*Series) error {
	for _, s := range all {
		if !s.isCadvisor() {
			continue
		}

		other := s.clone("job", "app")
		if err := server.AppendHistogram(ctx, end().Add(-30*time.Second), labels.FromMap(other.Labels)); err != nil {
			return err
		}
	}

	return nil
}
