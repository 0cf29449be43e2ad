// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// defaulted holds, by kind and name, the merge patch that the defaults make of an object of testdata/gocrane. A list
// stands whole.
func defaulted() map[string]map[string]any {
	spec := func(fields map[string]any) map[string]any { return map[string]any{"spec": fields} }
	return map[string]map[string]any{
		"Recommendation/gocrane-typed": spec(map[string]any{
			"completionStrategy": map[string]any{"completionStrategyType": "Once"},
			"adoptionType":       "StatusAndAnnotation",
		}),
		"Analytics/gocrane": spec(map[string]any{"completionStrategy": map[string]any{"completionStrategyType": "Once"}}),
		"EffectiveHorizontalPodAutoscaler/gocrane": spec(map[string]any{
			"minReplicas": int64(1), "scaleStrategy": "Auto", "prediction": map[string]any{"predictionWindowSeconds": int64(3600)},
		}),
		"EffectiveVerticalPodAutoscaler/gocrane": spec(map[string]any{
			"resourcePolicy": map[string]any{"containerPolicies": []any{map[string]any{
				"containerName": "web",
				"scaleUpPolicy": map[string]any{"mode": "Auto", "stabilizationWindowSeconds": int64(3600)},
				"scaleDownPolicy": map[string]any{
					"mode": "Auto", "stabilizationWindowSeconds": int64(3600),
					"metricThresholds": map[string]any{"memory": map[string]any{"utilization": int64(30)}},
				},
			}}},
		}),
		// The metadata of the template was always pruned.
		"ClusterNodePrediction/gocrane": spec(map[string]any{"template": map[string]any{"metadata": map[string]any{"labels": nil}}}),
		"NodeQOS/gocrane": spec(map[string]any{
			"nodeQualityProbe": map[string]any{"nodeLocalGet": map[string]any{"localCacheTTLSeconds": int64(60)}},
			"rules": []any{
				map[string]any{
					"name": "cpu-usage", "actionName": "throttle", "avoidanceThreshold": int64(2), "restoreThreshold": int64(2),
					"strategy": "None", "metricRule": map[string]any{"name": "cpu_total_usage", "value": int64(4000)},
				},
				map[string]any{
					"name": "distributed", "actionName": "disable-scheduling", "avoidanceThreshold": int64(1), "restoreThreshold": int64(1),
					"strategy": "None", "metricRule": map[string]any{"name": "ext_cpu_total_distribute", "value": "0.8"},
				},
			},
		}),
		"NodeQOS/gocrane-typed": spec(map[string]any{
			"netLimits": map[string]any{"rxBpsMin": nil, "rxBpsMax": nil, "txBpsMin": nil, "txBpsMax": nil},
		}),
		"PodQOS/gocrane": spec(map[string]any{"resourceQOS": map[string]any{"memoryQOS": map[string]any{
			"memoryCompression": map[string]any{"preference": "Tiny", "oversold": "Allow"},
		}}}),
		"AvoidanceAction/gocrane-disable-scheduling": spec(map[string]any{"coolDownSeconds": int64(300)}),
		"NodeResourceTopology/gocrane-node": {
			"craneManagerPolicy": map[string]any{"topologyManagerPolicy": "SingleNUMANodePodLevel"},
		},
	}
}

// TestObjectsOfGocraneApplyUnchanged creates objects as gocrane's users have them, and wants them back with the defaults
// that gocrane had and nothing else changed. A status goes: these kinds now have a subresource for it.
func TestObjectsOfGocraneApplyUnchanged(t *testing.T) {
	want := defaulted()
	for file, objects := range read(t, "testdata/gocrane") {
		for _, object := range objects {
			name := object.GetKind() + "/" + object.GetName()
			t.Run(file+"/"+name, func(t *testing.T) {
				stored, err := on(object).Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationIgnore})
				if err != nil {
					t.Fatal(err)
				}

				expected := content(object)
				delete(expected, "status")

				expected = merge(expected, want[name]).(map[string]any)
				if diff := cmp.Diff(expected, content(stored)); diff != "" {
					t.Errorf("the object differs (-expected +stored):\n%s", diff)
				}

				switch name {
				case "ClusterNodePrediction/gocrane": // the labels that are pruned are unknown fields
				case "NodeQOS/gocrane-typed": // the nulls were refused by gocrane too
				default:
					applyStrictly(t, object)
				}
			})

			delete(want, name)
		}
	}

	for name := range maps.Keys(want) {
		t.Errorf("no object %s in testdata/gocrane, want one", name)
	}
}

// applyStrictly applies an object as kubectl does. It changes nothing.
func applyStrictly(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()

	object = &unstructured.Unstructured{Object: runtime.DeepCopyJSON(object.Object)}
	if _, err := apply(t.Context(), object); err != nil {
		t.Errorf("apply: %v", err)
	}
}
