// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// customItem classifies an object of gocrane's kinds.
func customItem(o *Object) Item {
	item := Item{
		Ref:       RefOf(o),
		Component: componentObjects,
		Fate:      FateKept,
		object:    o,
	}

	switch o.GetKind() {
	case evpaKindName:
		if actsAtOnce(o) {
			item.Fate = FateDecision
			item.Note = "update mode " + updateMode(o) + ": gocrane ignored it, Crane resizes and evicts pods"
		}

	case "TimeSeriesPrediction", "Substitute":
		if o.GetLabels()[labelManagedBy] == ehpaManager {
			item.Fate = FateTakenOver
			item.Note = "of an EffectiveHorizontalPodAutoscaler"
		}

		if strings.HasPrefix(o.GetName(), "noderesource-") {
			item.Fate = FateTakenOver
			item.Note = "of a Node, made by crane-agent"
		}

	case "Recommendation":
		item.Fate = FateTakenOver
		item.Note = "evaluated again by its rule"

	case "Analytics":
		item.Fate = FateTakenOver
		item.Note = "craned makes a RecommendationRule of it"

	case "NodeResourceTopology":
		item.Fate = FateTakenOver
		item.Note = "written by Crane's agent"

	case "ConfigSet":
		item.Note = "has no effect, as in gocrane"
	}

	return item
}

const evpaKindName = "EffectiveVerticalPodAutoscaler"

func updateModePath() []string { return []string{"spec", "updatePolicy", "updateMode"} }

func updateMode(o *Object) string { return stringAt(o, updateModePath()...) }

// actsAtOnce reports whether an EffectiveVerticalPodAutoscaler changes pods as soon as Crane's craned sees it. A missing mode is Off.
func actsAtOnce(o *Object) bool {
	switch updateMode(o) {
	case "Auto", "Recreate", "Initial", "InPlace":
		return true
	}

	return false
}

// schedulerPolicy is the part of a DynamicSchedulerPolicy that names metrics.
type schedulerPolicy struct {
	Spec struct {
		SyncPolicy []struct {
			Name string `json:"name"`
		} `json:"syncPolicy"`
	} `json:"spec"`
}

// policyMetrics returns the metrics of gocrane's scheduler policies, with those of its default policy.
func policyMetrics(configMaps []*Object, namespaces []string) []string {
	out := loadMetrics()
	for _, m := range configMaps {
		if m.GetName() == "dynamic-scheduler-policy" && slices.Contains(namespaces, m.GetNamespace()) {
			out = append(out, metricsOf(m)...)
		}
	}

	slices.Sort(out)
	return slices.Compact(out)
}

// metricsOf returns the metrics of the policies in a ConfigMap.
func metricsOf(policies *Object) (out []string) {
	for _, text := range stringMapAt(policies, "data") {
		out = append(out, metricsIn(text)...)
	}

	return out
}

// metricsIn returns the metrics of a policy file; none if it is invalid.
func metricsIn(text string) []string {
	var p schedulerPolicy
	if yaml.Unmarshal([]byte(text), &p) != nil {
		return nil
	}

	var out []string
	for _, s := range p.Spec.SyncPolicy {
		out = append(out, s.Name)
	}

	return out
}
