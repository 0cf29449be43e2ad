// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"crane.io/crane/internal/migrate"
	"crane.io/crane/test/integration/harness"
)

const waitTimeout = 2 * time.Minute

func (f *fixture) eventually(what string, check func(context.Context) error) {
	f.Helper()
	harness.Eventually(f.Context(), f.T, waitTimeout, what, check)
}

// namespaced returns an object.
func namespaced(apiVersion, kind, namespace, name string, content map[string]any) *object {
	o := &object{Object: map[string]any{}}
	maps.Copy(o.Object, content)
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)

	if namespace != "" {
		o.SetNamespace(namespace)
	}

	o.SetName(name)
	return o
}

func annotate(o *object, pairs ...string) {
	a := o.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}

	for i := 0; i < len(pairs); i += 2 {
		a[pairs[i]] = pairs[i+1]
	}
	o.SetAnnotations(a)
}

func clusterScoped(kind string) bool {
	return slices.Contains([]string{"ClusterRole", "ClusterRoleBinding", "APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Namespace"}, kind)
}

func deepCopy(v any) any {
	if v == nil {
		return nil
	}

	return runtime.DeepCopyJSONValue(v)
}

func appNamespace(i int) string { return fmt.Sprintf("app-%d", i) }

// workload returns the namespace and the name of a generated workload.
func (s size) workload(i int) (namespace, name string) {
	return appNamespace(i % s.namespaces), fmt.Sprintf("web-%d", i)
}

// generateWorkloads creates users' Deployments; to a third of them gocrane has written its recommendation.
func (f *fixture) generateWorkloads(s size) {
	var spaces, plain, annotated []*object
	for i := range s.namespaces {
		spaces = append(spaces, namespaced("v1", "Namespace", "", appNamespace(i), nil))
	}

	for i := range s.workloads {
		namespace, name := s.workload(i)
		o := namespaced("apps/v1", "Deployment", namespace, name, map[string]any{"spec": podTemplateSpec(name)})
		if i%3 == 0 {
			annotate(o, "analysis.crane.io/resource-recommendation", "resourceRequest:\n  containers:\n  - containerName: main\n    target:\n      cpu: 114m\n")
			annotated = append(annotated, o)
			continue
		}

		plain = append(plain, o)
	}

	f.create("kubectl", false, spaces...)
	f.create("kubectl", false, plain...)
	f.create("craned", true, annotated...)
}

func podTemplateSpec(name string) map[string]any {
	labels := map[string]any{"app": name}
	return map[string]any{
		"replicas": int64(0), "selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"containers": []any{map[string]any{
			"name": "main", "image": "registry.example/web:1", "resources": map[string]any{"requests": map[string]any{"cpu": "500m", "memory": "256Mi"}},
		}}}},
	}
}

// generateObjects creates the objects of users and what gocrane's controllers made of them.
func (f *fixture) generateObjects(s size) {
	var ehpas, evpas, tsps, rules, ensurance []*object
	for i := range s.ehpas {
		namespace, name := s.workload(i)
		ehpas = append(ehpas, ehpa(namespace, name, i))
	}

	for i := range s.evpas {
		namespace, name := s.workload(s.ehpas + i)
		mode := []string{"Auto", "Off", "Initial"}[i%3]
		o := namespaced("autoscaling.crane.io/v1alpha1", "EffectiveVerticalPodAutoscaler", namespace, name, map[string]any{"spec": map[string]any{
			"targetRef": target(name), "updatePolicy": map[string]any{"updateMode": mode},
			"resourcePolicy": map[string]any{"containerPolicies": []any{map[string]any{"containerName": "*"}}},
		}})
		o.SetFinalizers([]string{"autoscaling.crane.io/finalizer"})
		evpas = append(evpas, o)
	}

	for i := range s.tsps {
		namespace, name := s.workload(2*s.ehpas + i)
		tsps = append(tsps, prediction(namespace, name, nil))
	}

	for i := range s.rules {
		rules = append(rules, rule(i, s))
	}

	ensurance = append(ensurance,
		namespaced("ensurance.crane.io/v1alpha1", "AvoidanceAction", "", "throttle", map[string]any{"spec": map[string]any{"throttle": map[string]any{"cpuThrottle": map[string]any{"minCPURatio": int64(10), "stepCPURatio": int64(10)}}}}),
		namespaced("ensurance.crane.io/v1alpha1", "NodeQOS", "", "busy", map[string]any{"spec": map[string]any{
			"nodeQualityProbe": map[string]any{"nodeLocalGet": map[string]any{}},
			"rules":            []any{map[string]any{"name": "cpu", "actionName": "throttle", "metricRule": map[string]any{"name": "cpu_total_usage", "value": int64(4000)}}},
		}}),
		namespaced("ensurance.crane.io/v1alpha1", "PodQOS", "", "low", map[string]any{"spec": map[string]any{"allowedActions": []any{"throttle"}, "labelSelector": map[string]any{"matchLabels": map[string]any{"tier": "low"}}}}),
		namespaced("prediction.crane.io/v1alpha1", "ClusterNodePrediction", f.installation.namespace, "nodes", map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{"pool": "a"}}}),
	)

	f.create("kubectl", true, slices.Concat(ehpas, evpas, tsps, rules, ensurance)...)
	var made []*object
	for _, e := range ehpas {
		made = append(made, f.madeFor(e)...)
	}

	for i := range s.workloads {
		made = append(made, f.recommendation(i, s))
	}
	f.create("craned", true, made...)
}

func target(name string) map[string]any {
	return map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
}

func cpuMetric() map[string]any {
	return map[string]any{"type": "Resource", "resource": map[string]any{"name": "cpu", "target": map[string]any{"type": "Utilization", "averageUtilization": int64(50)}}}
}

func ehpa(namespace, name string, i int) *object {
	spec := map[string]any{
		"scaleTargetRef": target(name), "minReplicas": int64(2), "maxReplicas": int64(10), "metrics": []any{cpuMetric()},
		"prediction": map[string]any{"predictionWindowSeconds": int64(3600), "predictionAlgorithm": map[string]any{"algorithmType": "dsp", "dsp": map[string]any{"sampleInterval": "60s", "historyLength": "7d"}}},
	}

	if i%4 == 0 {
		spec["crons"] = []any{map[string]any{"name": "morning", "start": "0 8 * * *", "end": "0 10 * * *", "targetReplicas": int64(6)}}
	}
	if i%10 == 0 {
		spec["scaleStrategy"] = "Preview"
	}

	o := namespaced("autoscaling.crane.io/v1alpha1", "EffectiveHorizontalPodAutoscaler", namespace, name, map[string]any{
		"spec": spec, "status": map[string]any{"expectReplicas": int64(3), "currentReplicas": int64(3), "conditions": []any{condition("Ready", "EffectiveHorizontalPodAutoscalerReady")}},
	})
	annotate(o, "autoscaling.crane.io/effective-hpa-current-metrics", "- resource:\n    current:\n      averageUtilization: 37\n    name: cpu\n  type: Resource\n")
	o.SetFinalizers([]string{"autoscaling.crane.io/finalizer"})

	return o
}

func condition(kind, reason string) map[string]any {
	return map[string]any{"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": "2024-05-01T00:00:00Z"}
}

// madeFor returns the HPA, the TimeSeriesPrediction and the Substitute that craned makes for an EffectiveHorizontalPodAutoscaler.
func (f *fixture) madeFor(e *object) []*object {
	name := "ehpa-" + e.GetName()
	labels := map[string]string{
		"app.kubernetes.io/managed-by": "effective-hpa-controller", "app.kubernetes.io/name": name, "app.kubernetes.io/part-of": e.GetName(),
		"autoscaling.crane.io/effective-hpa-uid": string(e.GetUID()),
	}

	scaled := target(e.GetName())
	preview := false
	if strategy, _, _ := unstructured.NestedString(e.Object, "spec", "scaleStrategy"); strategy == "Preview" {
		scaled = map[string]any{"apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "Substitute", "name": name}
		preview = true
	}

	hpa := namespaced("autoscaling/v2", "HorizontalPodAutoscaler", e.GetNamespace(), name, map[string]any{
		"spec": map[string]any{
			"scaleTargetRef": scaled, "minReplicas": int64(2), "maxReplicas": int64(10),
			"metrics": []any{cpuMetric(), map[string]any{"type": "External", "external": map[string]any{
				"metric": map[string]any{"name": "crane_autoscaling_prediction", "selector": map[string]any{"matchLabels": map[string]any{
					"targetKind": "Deployment", "targetName": e.GetName(), "targetNamespace": e.GetNamespace(), "resourceIdentifier": "resource.cpu",
				}}}, "target": map[string]any{"type": "AverageValue", "averageValue": "250m"},
			}}},
		},
		"status": map[string]any{"currentReplicas": int64(3), "desiredReplicas": int64(3), "currentMetrics": nil, "conditions": []any{condition("ScalingActive", "ValidMetricFound")}},
	})

	tsp := prediction(e.GetNamespace(), name, map[string]string{"target-kind": "Deployment"})
	reference := target(e.GetName())
	reference["namespace"] = e.GetNamespace()
	_ = unstructured.SetNestedMap(tsp.Object, reference, "spec", "targetRef")

	out := []*object{hpa, tsp}
	if preview {
		out = append(out, namespaced("autoscaling.crane.io/v1alpha1", "Substitute", e.GetNamespace(), name, map[string]any{
			"spec":   map[string]any{"substituteTargetRef": target(e.GetName()), "replicas": int64(3)},
			"status": map[string]any{"replicas": int64(3), "labelSelector": "app=" + e.GetName()},
		}))
	}

	if crons, _, _ := unstructured.NestedSlice(e.Object, "spec", "crons"); len(crons) > 0 {
		metrics, _, _ := unstructured.NestedSlice(hpa.Object, "spec", "metrics")
		_ = unstructured.SetNestedSlice(hpa.Object, append(metrics, map[string]any{"type": "External", "external": map[string]any{
			"metric": map[string]any{"name": "crane_autoscaling_cron", "selector": map[string]any{"matchLabels": map[string]any{
				"targetKind": "Deployment", "targetName": e.GetName(), "targetNamespace": e.GetNamespace(), "resourceIdentifier": "cron",
			}}}, "target": map[string]any{"type": "AverageValue", "averageValue": "1"},
		}}), "spec", "metrics")
	}

	for _, o := range out {
		o.SetLabels(labels)
		o.Object["metadata"].(map[string]any)["ownerReferences"] = []any{f.installation.owner(migrate.RefOf(e))}
	}

	return out
}

// prediction returns a TimeSeriesPrediction with a forecast of two windows.
func prediction(namespace, name string, labels map[string]string) *object {
	var samples []any
	for i := range 120 {
		samples = append(samples, map[string]any{"timestamp": int64(1714521600 + 60*i), "value": fmt.Sprintf("%.5f", 1+float64(i%7)/10)})
	}

	o := namespaced("prediction.crane.io/v1alpha1", "TimeSeriesPrediction", namespace, name, map[string]any{
		"spec": map[string]any{
			"targetRef": target(name), "predictionWindowSeconds": int64(3600), "predictionMetrics": []any{map[string]any{
				"resourceIdentifier": "resource.cpu", "type": "ResourceQuery", "resourceQuery": "cpu",
				"algorithm": map[string]any{"algorithmType": "dsp", "dsp": map[string]any{"sampleInterval": "60s", "historyLength": "7d"}},
			}},
		},
		"status": map[string]any{"predictionMetrics": []any{map[string]any{
			"resourceIdentifier": "resource.cpu", "ready": true, "prediction": []any{map[string]any{"samples": samples}},
		}}, "conditions": []any{condition("Ready", "PredictSucceed")}},
	})

	o.SetLabels(labels)
	return o
}

func rule(i int, s size) *object {
	recommender := []string{"Resource", "Replicas"}[i%2]
	o := namespaced("analysis.crane.io/v1alpha1", "RecommendationRule", "", fmt.Sprintf("rule-%d", i), map[string]any{
		"spec": map[string]any{
			"runInterval": "24h", "namespaceSelector": map[string]any{"matchNames": []any{appNamespace(i % s.namespaces)}},
			"resourceSelectors": []any{map[string]any{"kind": "Deployment", "apiVersion": "apps/v1"}}, "recommenders": []any{map[string]any{"name": recommender}},
		},
		"status": map[string]any{"lastUpdateTime": "2024-05-01T00:00:00Z", "runNumber": int64(7)},
	})

	o.SetLabels(map[string]string{"analysis.crane.io/recommendation-rule-preinstall": "true"})
	return o
}

// recommendation returns the Recommendation of a rule for a workload. gocrane wrote the status with the object.
func (f *fixture) recommendation(i int, s size) *object {
	namespace, name := s.workload(i)
	r := i % s.rules
	of := migrate.Ref{APIVersion: "analysis.crane.io/v1alpha1", Kind: "RecommendationRule", Name: fmt.Sprintf("rule-%d", r)}
	recommender := []string{"Resource", "Replicas"}[r%2]
	reference := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace, "name": name}

	o := namespaced("analysis.crane.io/v1alpha1", "Recommendation", namespace, fmt.Sprintf("rule-%d-%s-%05d", r, strings.ToLower(recommender), i), map[string]any{
		"spec": map[string]any{"targetRef": reference, "type": recommender, "adoptionType": "StatusAndAnnotation"},
		"status": map[string]any{
			"recommendedValue": "resourceRequest:\n  containers:\n  - containerName: main\n    target:\n      cpu: 114m\n      memory: 120586239\n",
			"recommendedInfo":  `{"spec":{"template":{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"114m","memory":"120586239"}}}]}}}}`,
			"targetRef":        reference, "action": "Patch", "lastUpdateTime": "2024-05-01T00:00:00Z", "conditions": []any{condition("Ready", "RecommendationReady")},
		},
	})

	o.SetLabels(map[string]string{
		"analysis.crane.io/recommendation-rule-name": of.Name, "analysis.crane.io/recommendation-rule-uid": f.installation.uids[of], "analysis.crane.io/recommendation-rule-recommender": recommender,
		"analysis.crane.io/recommendation-target-kind": "Deployment", "analysis.crane.io/recommendation-target-name": name, "analysis.crane.io/recommendation-target-namespace": namespace,
	})
	annotate(o, "analysis.crane.io/run-number", "7", "analysis.crane.io/last-start-time", "2024-05-01 00:00:00", "analysis.crane.io/message", "Success")
	owner := f.installation.owner(of)
	owner["controller"] = false
	owner["blockOwnerDeletion"] = false
	o.Object["metadata"].(map[string]any)["ownerReferences"] = []any{owner}

	return o
}
