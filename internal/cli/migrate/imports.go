// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Import is an object of another project and what it maps to in Crane. Nothing is written.
type Import struct {
	Source string `json:"source"`
	Object string `json:"object"`
	// To is the kind or setting of Crane.
	To string `json:"to"`
	// Unmapped are the settings that Crane does not have.
	Unmapped []string `json:"unmapped,omitempty"`
	// Manifest is an object of Crane in YAML that corresponds to it; empty if there is none.
	Manifest string `json:"manifest,omitempty"`
}

// readImports reads objects of the VPA, Goldilocks, KEDA and prometheus-adapter.
func readImports(ctx context.Context, c client.Reader, inv *Inventory) ([]Import, error) {
	r := &reader{Reader: c, unreadable: inv.Unreadable}
	var out []Import
	for _, source := range []struct {
		kind schema.GroupVersionKind
		to   func(*Object) (Import, bool)
	}{
		{schema.GroupVersionKind{Group: "autoscaling.k8s.io", Version: "v1", Kind: "VerticalPodAutoscaler"}, fromVPA},
		{schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, fromGoldilocks},
		{schema.GroupVersionKind{Group: "keda.sh", Version: "v1alpha1", Kind: "ScaledObject"}, fromKEDA},
	} {
		found, err := r.list(ctx, source.kind)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			if i, ok := source.to(o); ok {
				out = append(out, i)
			}
		}
	}
	for _, o := range inv.others["ConfigMap"] {
		if i, ok := fromPrometheusAdapter(o); ok {
			out = append(out, i)
		}
	}
	return out, nil
}

// newImport returns an Import with a manifest.
func newImport(source string, from *Object, to string, unmapped []string, manifest map[string]any) (Import, bool) {
	i := Import{Source: source, Object: RefOf(from).String(), To: to, Unmapped: unmapped}
	if manifest != nil {
		text, err := yaml.Marshal(manifest)
		if err != nil {
			return i, false
		}
		i.Manifest = string(text)
	}
	return i, true
}

// fromVPA maps a VerticalPodAutoscaler to an EffectiveVerticalPodAutoscaler, whose fields are the same apart from recommenders.
func fromVPA(o *Object) (Import, bool) {
	target, ok, _ := unstructured.NestedMap(o.Object, "spec", "targetRef")
	if !ok || o.GetLabels()["creator"] == "Fairwinds" {
		return Import{}, false
	}
	// A VPA without an update policy acts; an EffectiveVerticalPodAutoscaler without one does not.
	spec := map[string]any{"targetRef": target, "updatePolicy": map[string]any{"updateMode": "Auto"}}
	var unmapped []string
	fields, _, _ := unstructured.NestedMap(o.Object, "spec")
	for field, value := range fields {
		switch field {
		case "targetRef":
		case "updatePolicy":
			policy, _ := value.(map[string]any)
			mode, _, _ := unstructured.NestedString(policy, "updateMode")
			if mode == "" {
				mode = "Auto"
			}
			if mode == "InPlaceOrRecreate" {
				mode = "Auto"
			}
			spec["updatePolicy"] = map[string]any{"updateMode": mode}
			for other := range policy {
				if other != "updateMode" {
					unmapped = append(unmapped, "updatePolicy."+other)
				}
			}
		case "resourcePolicy":
			policies, missing := containerPolicies(o)
			spec["resourcePolicy"] = map[string]any{"containerPolicies": policies}
			unmapped = append(unmapped, missing...)
		default:
			unmapped = append(unmapped, field)
		}
	}
	slices.Sort(unmapped)
	return newImport("VerticalPodAutoscaler", o, "EffectiveVerticalPodAutoscaler", unmapped, map[string]any{
		"apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "EffectiveVerticalPodAutoscaler",
		"metadata": map[string]any{"name": o.GetName(), "namespace": o.GetNamespace()}, "spec": spec,
	})
}

// containerPolicies maps the policies of containers of a VPA and returns what has no counterpart.
func containerPolicies(o *Object) (policies []any, unmapped []string) {
	for _, p := range mapsAt(o, "spec", "resourcePolicy", "containerPolicies") {
		out := map[string]any{}
		for field, value := range p {
			switch field {
			case "containerName", "minAllowed", "maxAllowed", "controlledResources", "controlledValues":
				out[field] = value
			case "mode":
				if value == "Off" {
					out["scaleUpPolicy"], out["scaleDownPolicy"] = map[string]any{"mode": "Off"}, map[string]any{"mode": "Off"}
				}
			default:
				unmapped = append(unmapped, "containerPolicies."+field)
			}
		}
		policies = append(policies, out)
	}
	return policies, unmapped
}

// fromGoldilocks maps a namespace that Goldilocks watches to a RecommendationRule.
func fromGoldilocks(o *Object) (Import, bool) {
	if o.GetLabels()["goldilocks.fairwinds.com/enabled"] != "true" {
		return Import{}, false
	}
	var unmapped []string
	for key := range o.GetLabels() {
		if strings.HasPrefix(key, "goldilocks.fairwinds.com/") && key != "goldilocks.fairwinds.com/enabled" {
			unmapped = append(unmapped, "label "+key)
		}
	}
	slices.Sort(unmapped)
	return newImport("Goldilocks", o, "RecommendationRule", unmapped, map[string]any{
		"apiVersion": "analysis.crane.io/v1alpha1", "kind": "RecommendationRule", "metadata": map[string]any{"name": o.GetName() + "-resources"},
		"spec": map[string]any{
			"runInterval": "24h", "namespaceSelector": map[string]any{"matchNames": []any{o.GetName()}}, "recommenders": []any{map[string]any{"name": "Resource"}},
			"resourceSelectors": []any{
				map[string]any{"kind": "Deployment", "apiVersion": "apps/v1"}, map[string]any{"kind": "StatefulSet", "apiVersion": "apps/v1"},
			},
		},
	})
}

// fromKEDA maps the cron triggers of a ScaledObject to an EffectiveHorizontalPodAutoscaler. It adds no metrics of others.
func fromKEDA(o *Object) (Import, bool) {
	var crons []any
	var unmapped []string
	for n, trigger := range mapsAt(o, "spec", "triggers") {
		kind, _ := trigger["type"].(string)
		if kind != "cron" {
			unmapped = append(unmapped, "trigger "+kind)
			continue
		}
		meta, _ := trigger["metadata"].(map[string]any)
		text := func(key string) string { s, _ := meta[key].(string); return s }
		var replicas int64
		if _, err := fmt.Sscan(text("desiredReplicas"), &replicas); err != nil {
			unmapped = append(unmapped, fmt.Sprintf("trigger cron with desiredReplicas %q", text("desiredReplicas")))
			continue
		}
		crons = append(crons, map[string]any{"name": fmt.Sprintf("cron-%d", n+1), "start": text("start"), "end": text("end"), "timezone": text("timezone"), "targetReplicas": replicas})
	}
	if len(crons) == 0 {
		return Import{}, false
	}
	target, _, _ := unstructured.NestedMap(o.Object, "spec", "scaleTargetRef")
	reference := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": target["name"]}
	for _, field := range []string{"apiVersion", "kind"} {
		if s, _ := target[field].(string); s != "" {
			reference[field] = s
		}
	}
	spec := map[string]any{"scaleTargetRef": reference, "crons": crons, "maxReplicas": int64(100)}
	for from, to := range map[string]string{"minReplicaCount": "minReplicas", "maxReplicaCount": "maxReplicas"} {
		if n, ok, _ := unstructured.NestedInt64(o.Object, "spec", from); ok {
			spec[to] = n
		}
	}
	return newImport("KEDA", o, "EffectiveHorizontalPodAutoscaler", unmapped, map[string]any{
		"apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "EffectiveHorizontalPodAutoscaler",
		"metadata": map[string]any{"name": o.GetName(), "namespace": o.GetNamespace()}, "spec": spec,
	})
}

// fromPrometheusAdapter recognises a configuration of prometheus-adapter, which Crane's metric-adapter reads.
func fromPrometheusAdapter(o *Object) (Import, bool) {
	for key, text := range stringMapAt(o, "data") {
		var c map[string]any
		if !strings.Contains(text, "seriesQuery") || !strings.Contains(text, "metricsQuery") || yaml.Unmarshal([]byte(text), &c) != nil {
			continue
		}
		var found, unmapped []string
		for field, value := range c {
			list, _ := value.([]any)
			switch field {
			case "rules", "externalRules":
				found = append(found, fmt.Sprintf("%d %s", len(list), field))
			case "resourceRules":
				unmapped = append(unmapped, "resourceRules (the metrics API of resources is metrics-server's)")
			default:
				unmapped = append(unmapped, field)
			}
		}
		if len(found) == 0 {
			continue
		}
		slices.Sort(found)
		slices.Sort(unmapped)
		return newImport("prometheus-adapter", o, "metricAdapter.rules and .externalRules of the chart: "+strings.Join(found, ", ")+" in "+key, unmapped, nil)
	}
	return Import{}, false
}
