// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/pkg/scaling"
)

// Import is an object of another project and what it maps to in Crane. Nothing is written.
type Import struct {
	Source string `json:"source"`
	Object string `json:"object"`
	// To is the kind or setting of Crane; empty if nothing maps.
	To string `json:"to,omitempty"`
	// Unmapped are the settings that have no counterpart, each with the reason.
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

	// The inventory has read ConfigMaps already.
	for _, o := range inv.others["ConfigMap"] {
		if i, ok := fromPrometheusAdapter(o); ok {
			out = append(out, i)
		}
	}

	return out, nil
}

// newImport returns an Import with a manifest; nil for none.
func newImport(source string, from *Object, to string, unmapped []string, manifest map[string]any) (Import, bool) {
	slices.Sort(unmapped)
	i := Import{
		Source:   source,
		Object:   RefOf(from).String(),
		To:       to,
		Unmapped: unmapped,
	}

	if manifest != nil {
		text, err := yaml.Marshal(manifest)
		if err != nil {
			return i, false
		}

		i.Manifest = string(text)
	}

	return i, true
}

// vpaReasons are the reasons why fields of a VerticalPodAutoscaler have no counterpart.
func vpaReasons() map[string]string {
	return map[string]string{
		"recommenders":                         "Crane has estimators of its own, see resourceEstimators",
		"updatePolicy.minReplicas":             "the budgets of adoption decide how many pods may be disrupted",
		"updatePolicy.evictionRequirements":    "the budgets of adoption decide when pods are evicted",
		"startupBoost":                         "Crane sizes without a boost at the start",
		"containerPolicies.oomBumpUpRatio":     "Crane raises memory by its own record of OOM kills",
		"containerPolicies.oomMinBumpUp":       "Crane raises memory by its own record of OOM kills",
		"containerPolicies.startupBoost":       "Crane sizes without a boost at the start",
		"containerPolicies.pruningGracePeriod": "Crane forgets a container with its pods",
	}
}

// unmappedField returns a field with the reason why it has no counterpart.
func unmappedField(field string) string {
	if reason := vpaReasons()[field]; reason != "" {
		return field + " (" + reason + ")"
	}

	return field + " (not known to Crane)"
}

// fromVPA maps a VerticalPodAutoscaler to an EffectiveVerticalPodAutoscaler, whose fields are the same apart from recommenders.
func fromVPA(o *Object) (Import, bool) {
	const source = "VerticalPodAutoscaler"
	if o.GetLabels()["creator"] == "Fairwinds" {
		return Import{}, false // of Goldilocks, which is found by its namespace
	}

	target, _, _ := unstructured.NestedMap(o.Object, "spec", "targetRef")
	if name, _ := target["name"].(string); name == "" {
		return newImport(source, o, "", []string{"targetRef (it names no target)"}, nil)
	}

	// A VPA without an update policy acts; an EffectiveVerticalPodAutoscaler without one does not.
	mode := "Auto"

	spec := map[string]any{"targetRef": target}
	var unmapped []string
	fields, _, _ := unstructured.NestedMap(o.Object, "spec")
	for field, value := range fields {
		switch field {
		case "targetRef":

		case "updatePolicy":
			policy, _ := value.(map[string]any)
			for other := range policy {
				if other != "updateMode" {
					unmapped = append(unmapped, unmappedField("updatePolicy."+other))
				}
			}

			var ok bool
			if mode, ok = updateModeOfVPA(policy["updateMode"]); !ok {
				unmapped = append(unmapped, fmt.Sprintf("updatePolicy.updateMode %v (not known: Off, which does not act, is the safe choice)", policy["updateMode"]))
			}

		case "resourcePolicy":
			policies, missing := containerPolicies(o)
			if len(policies) > 0 {
				spec["resourcePolicy"] = map[string]any{"containerPolicies": policies}
			}

			unmapped = append(unmapped, missing...)

		default:
			unmapped = append(unmapped, unmappedField(field))
		}
	}

	spec["updatePolicy"] = map[string]any{"updateMode": mode}
	return newImport(source, o, "EffectiveVerticalPodAutoscaler", unmapped, map[string]any{
		"apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "EffectiveVerticalPodAutoscaler",
		"metadata": map[string]any{"name": o.GetName(), "namespace": o.GetNamespace()}, "spec": spec,
	})
}

// updateModeOfVPA maps an update mode. It returns Off and false for an unknown one.
func updateModeOfVPA(mode any) (string, bool) {
	switch mode {
	case nil, "", "Auto", "InPlaceOrRecreate":
		return "Auto", true
	case "Off", "Initial", "Recreate", "InPlace":
		text, ok := mode.(string)
		return text, ok
	}

	return "Off", false
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
					out["scaleUpPolicy"] = map[string]any{"mode": "Off"}
					out["scaleDownPolicy"] = map[string]any{"mode": "Off"}
				}

			default:
				unmapped = append(unmapped, unmappedField("containerPolicies."+field))
			}
		}

		policies = append(policies, out)
	}

	return policies, unmapped
}

// fromGoldilocks maps a namespace that Goldilocks watches to a RecommendationRule.
func fromGoldilocks(o *Object) (Import, bool) {
	const prefix = "goldilocks.fairwinds.com/"
	if o.GetLabels()[prefix+"enabled"] != "true" {
		return Import{}, false
	}

	reasons := map[string]string{
		"vpa-update-mode":     "a rule recommends; adoptionType applies",
		"vpa-min-replicas":    "the budgets of adoption decide how many pods may be disrupted",
		"vpa-resource-policy": "set bounds in the config of the recommender",
	}

	var unmapped []string
	for key := range o.GetLabels() {
		if name, ok := strings.CutPrefix(key, prefix); ok && name != "enabled" {
			reason := reasons[name]
			if reason == "" {
				reason = "not known to Crane"
			}

			unmapped = append(unmapped, "label "+key+" ("+reason+")")
		}
	}

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

// maxImportedReplicas is KEDA's default of maxReplicaCount.
const maxImportedReplicas = 100

// fromKEDA maps the cron triggers of a ScaledObject to an EffectiveHorizontalPodAutoscaler. It adds no metrics of others.
func fromKEDA(o *Object) (Import, bool) {
	crons, unmapped := cronTriggers(o)
	target, _, _ := unstructured.NestedMap(o.Object, "spec", "scaleTargetRef")

	name, _ := target["name"].(string)
	if name == "" {
		unmapped = append(unmapped, "scaleTargetRef (it names no target)")
	}

	if len(crons) == 0 || name == "" {
		return newImport("KEDA", o, "", unmapped, nil)
	}

	reference := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
	for _, field := range []string{"apiVersion", "kind"} {
		if s, _ := target[field].(string); s != "" {
			reference[field] = s
		}
	}

	spec := map[string]any{"scaleTargetRef": reference, "crons": crons, "maxReplicas": int64(maxImportedReplicas)}

	// Each field is mapped, or listed with the reason why it is not.
	fields, _, _ := unstructured.NestedMap(o.Object, "spec")
	for field := range fields {
		switch field {
		case "scaleTargetRef", "triggers":
		case "minReplicaCount", "maxReplicaCount":
			n := int64At(o, "spec", field)
			if n < 1 {
				unmapped = append(unmapped, fmt.Sprintf("%s %d (Crane does not scale to zero)", field, n))
				continue
			}

			spec[map[string]string{"minReplicaCount": "minReplicas", "maxReplicaCount": "maxReplicas"}[field]] = n

		case "advanced":
			behavior, missing := advancedSettings(o)
			if behavior != nil {
				spec["behavior"] = behavior
			}

			unmapped = append(unmapped, missing...)

		case "idleReplicaCount":
			unmapped = append(unmapped, field+" (Crane does not scale to zero)")
		case "fallback":
			unmapped = append(unmapped, field+" (where a metric has no value, an HPA does not scale down)")
		case "cooldownPeriod", "initialCooldownPeriod", "pollingInterval":
			unmapped = append(unmapped, field+" (of KEDA's own loop; set behavior.scaleDown)")
		default:
			unmapped = append(unmapped, field+" (not known to Crane)")
		}
	}

	if isPausedByKEDA(o) {
		unmapped = append(unmapped, "annotation autoscaling.keda.sh/paused (set scaleStrategy Preview)")
	}

	return newImport("KEDA", o, "EffectiveHorizontalPodAutoscaler", unmapped, map[string]any{
		"apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "EffectiveHorizontalPodAutoscaler",
		"metadata": map[string]any{"name": o.GetName(), "namespace": o.GetNamespace()}, "spec": spec,
	})
}

// isPausedByKEDA reports whether KEDA does not scale the target. A value of the annotation that is no boolean pauses as well.
func isPausedByKEDA(o *Object) bool {
	if _, ok := o.GetAnnotations()["autoscaling.keda.sh/paused-replicas"]; ok {
		return true
	}

	value, ok := o.GetAnnotations()["autoscaling.keda.sh/paused"]
	paused, err := strconv.ParseBool(value)
	return ok && (paused || err != nil)
}

// advancedSettings returns the behavior in the advanced settings of a ScaledObject, nil if there is none, and the settings that have no counterpart.
func advancedSettings(o *Object) (behavior map[string]any, unmapped []string) {
	const hpa = "horizontalPodAutoscalerConfig"
	advanced, _, _ := unstructured.NestedMap(o.Object, "spec", "advanced")
	for setting := range advanced {
		if setting != hpa {
			unmapped = append(unmapped, "advanced."+setting+" (not known to Crane)")
		}
	}

	config, _ := advanced[hpa].(map[string]any)
	for setting := range config {
		if setting != "behavior" {
			unmapped = append(unmapped, "advanced."+hpa+"."+setting+" (not known to Crane)")
		}
	}

	behavior, _ = config["behavior"].(map[string]any)
	return behavior, unmapped
}

// cronTriggers maps the triggers of a ScaledObject to cron windows and returns what has no counterpart.
func cronTriggers(o *Object) (crons []any, unmapped []string) {
	for n, trigger := range mapsAt(o, "spec", "triggers") {
		kind, _ := trigger["type"].(string)
		switch kind {
		case "cron":
		case "cpu", "memory":
			unmapped = append(unmapped, "trigger "+kind+" (add it to metrics as a Resource metric)")
			continue
		default:
			unmapped = append(unmapped, "trigger "+kind+" (add it to metrics as an External metric; KEDA or a rule of metric-adapter has to serve it)")
			continue
		}

		// Crane validates the window: a trigger that it would reject is listed as unmapped.
		text := func(key string) string { s, _, _ := unstructured.NestedString(trigger, "metadata", key); return s }

		replicas, err := strconv.ParseInt(text("desiredReplicas"), 10, 32)
		var zone *time.Location
		if err == nil {
			zone, err = time.LoadLocation(text("timezone"))
		}

		name := fmt.Sprintf("cron-%d", n+1)
		if err == nil {
			_, err = scaling.NewCronWindow(name, text("start"), text("end"), zone, int32(replicas))
		}

		if err != nil {
			unmapped = append(unmapped, fmt.Sprintf("trigger cron %d (%v)", n+1, err))
			continue
		}

		crons = append(crons, map[string]any{"name": name, "start": text("start"), "end": text("end"), "timezone": text("timezone"), "targetReplicas": replicas})
	}

	return crons, unmapped
}

// fromPrometheusAdapter recognizes a configuration of prometheus-adapter, which Crane's metric-adapter reads.
func fromPrometheusAdapter(o *Object) (Import, bool) {
	data := stringMapAt(o, "data")
	for _, key := range slices.Sorted(maps.Keys(data)) {
		text := data[key]
		if !strings.Contains(text, "seriesQuery") || !strings.Contains(text, "metricsQuery") || o.GetLabels()[labelPartOf] == "crane" || o.GetName() == componentAdapter {
			continue
		}

		// The adapter's own parser decides whether Crane can read the rules.
		var c map[string]any

		var rules *promadapter.Rules

		err := yaml.Unmarshal([]byte(text), &c)
		if err == nil {
			rules, err = promadapter.Parse([]byte(text), nil)
		}

		refused := &promadapter.InvalidRulesError{}
		errors.As(rules.Refused(), &refused)

		var found, unmapped []string
		if problem := errors.Join(err, rules.Refused()); problem != nil {
			unmapped = append(unmapped, fmt.Sprintf("%s (%v)", key, problem))
		}

		for field, value := range c {
			list, _ := value.([]any)
			accepted := len(list) - refused.Counts[field]
			switch {
			case (field == "rules" || field == "externalRules") && accepted > 0:
				found = append(found, fmt.Sprintf("%d %s", accepted, field))
			case field == "rules" || field == "externalRules":
			case field == "resourceRules":
				unmapped = append(unmapped, "resourceRules (the metrics API of resources is metrics-server's)")
			default:
				unmapped = append(unmapped, field+" (not known to Crane)")
			}
		}

		if err != nil || len(found) == 0 {
			return newImport("prometheus-adapter", o, "", unmapped, nil)
		}

		slices.Sort(found)
		return newImport("prometheus-adapter", o, "metricAdapter.rules and .externalRules of the chart: "+strings.Join(found, ", ")+" in "+key, unmapped, nil)
	}

	return Import{}, false
}
