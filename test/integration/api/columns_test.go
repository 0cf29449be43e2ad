// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// maxColumn is the maximum width of a cell that kubectl get prints.
const maxColumn = 60

// TestColumns asks the API server for the table that kubectl get prints and checks what each kind shows of an object.
func TestColumns(t *testing.T) {
	long := strings.Repeat("a long explanation of what was found ", 30)
	condition := func(kind, reason string) map[string]any {
		return map[string]any{"type": kind, "status": "True", "reason": reason, "message": long, "lastTransitionTime": "2026-01-01T00:00:00Z"}
	}
	for _, c := range []struct {
		object string
		status map[string]any
		want   []string
	}{
		{
			`{"apiVersion": "analysis.crane.io/v1alpha1", "kind": "Recommendation", "spec": {"type": "Resource",
			  "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "fixtures", "name": "catalog"}}}`,
			map[string]any{
				"change": "cpu 1 → 778m, memory 1136Mi → 512Mi", "description": long, "action": "Patch",
				"savings":    map[string]any{"cpu": "1", "memory": "1Gi", "monthly": "12.34", "currency": "USD"},
				"conditions": []any{condition("Ready", "RecommendationReady")},
			},
			[]string{"columns", "catalog", "cpu 1 → 778m, memory 1136Mi → 512Mi", "12.34", "USD", "True"},
		},
		{
			`{"apiVersion": "analysis.crane.io/v1alpha1", "kind": "RecommendationRule", "spec": {"namespaceSelector": {"any": true}, "runInterval": "1h",
			  "resourceSelectors": [{"kind": "Deployment"}], "recommenders": [{"name": "Resource"}]}}`,
			map[string]any{"runNumber": int64(1), "targets": int64(60), "lastUpdateTime": "2026-01-01T00:00:00Z", "conditions": []any{condition("Ready", "RoundCompleted")}},
			[]string{"columns", "1h", "True", "RoundCompleted", "60"},
		},
		{
			`{"apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "EffectiveVerticalPodAutoscaler", "spec": {"updatePolicy": {"updateMode": "Off"},
			  "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "catalog"}}}`,
			map[string]any{
				"change":     "cpu 1 → 366m, memory 512Mi",
				"conditions": []any{condition("Ready", "Computed"), condition("Applied", "Held")},
			},
			[]string{"columns", "catalog", "Off", "cpu 1 → 366m, memory 512Mi", "True", "Held"},
		},
		{
			`{"apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "EffectiveHorizontalPodAutoscaler", "spec": {"minReplicas": 2, "maxReplicas": 30,
			  "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "catalog"}}}`,
			map[string]any{"expectReplicas": int64(4), "why": long, "conditions": []any{condition("Ready", "Scaling")}},
			[]string{"columns", "catalog", "Auto", "2", "30", "4", "True", "Scaling"},
		},
		{
			`{"apiVersion": "prediction.crane.io/v1alpha1", "kind": "TimeSeriesPrediction", "spec": {"targetRef": {"kind": "Node", "name": "node-01"},
			  "predictionWindowSeconds": 3600, "predictionMetrics": [{"resourceIdentifier": "cpu", "type": "ResourceQuery", "resourceQuery": "cpu",
			  "algorithm": {"algorithmType": "auto"}}]}}`,
			map[string]any{
				"predictionMetrics": []any{map[string]any{"resourceIdentifier": "cpu", "ready": true, "skill": "0.71", "skillOrigins": int64(7), "reason": long}},
				"conditions":        []any{condition("Ready", "PredictSucceed")},
			},
			[]string{"columns", "node-01", "True", "PredictSucceed", "0.71"},
		},
		{
			`{"apiVersion": "prediction.crane.io/v1alpha1", "kind": "ClusterNodePrediction", "spec": {}}`,
			map[string]any{"desiredNumberCreated": int64(12), "currentNumberCreated": int64(11), "conditions": []any{condition("Ready", "NotAllCreated")}},
			[]string{"columns", "12", "11", "True", "NotAllCreated"},
		},
		{
			`{"apiVersion": "ensurance.crane.io/v1alpha1", "kind": "NodeQOS", "spec": {"rules": [{"name": "cpu", "actionName": "throttle",
			  "metricRule": {"name": "cpu_total_usage", "value": "12000"}}]}}`,
			nil,
			[]string{"columns", "cpu", "cpu_total_usage", "12000", "throttle"},
		},
		{
			`{"apiVersion": "ensurance.crane.io/v1alpha1", "kind": "PodQOS", "spec": {"allowedActions": ["throttle"], "labelSelector": {"matchLabels": {"a": "b"}},
			  "resourceQOS": {"cpuQOS": {"cpuPriority": 7}}}}`,
			nil,
			[]string{"columns", "throttle", "7"},
		},
	} {
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(c.object), &object.Object); err != nil {
			t.Fatal(err)
		}

		object.SetName("columns")
		if kinds()[object.GroupVersionKind()].namespaced {
			object.SetNamespace(namespace)
		}

		t.Run(object.GetKind(), func(t *testing.T) {
			resource := on(object)
			created, err := resource.Create(t.Context(), object, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { _ = resource.Delete(t.Context(), "columns", metav1.DeleteOptions{}) })
			if c.status != nil {
				created.Object["status"] = c.status
				if _, err := resource.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}

			got := printed(t, object)
			for i, want := range c.want {
				if i >= len(got) || got[i] != want {
					t.Fatalf("kubectl get prints %q, want %q", got, c.want)
				}
			}
		})
	}
}

// printed returns the cells of kubectl get, and fails if one of them, or of kubectl get -o wide, is too wide.
func printed(t *testing.T, object *unstructured.Unstructured) []string {
	t.Helper()

	configuration := rest.CopyConfig(plane.Config())
	gv := object.GroupVersionKind().GroupVersion()
	configuration.GroupVersion = &schema.GroupVersion{Group: gv.Group, Version: gv.Version}
	configuration.APIPath = "/apis"

	configuration.NegotiatedSerializer = kubescheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(configuration)
	if err != nil {
		t.Fatal(err)
	}

	data, err := client.Get().SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").NamespaceIfScoped(object.GetNamespace(), object.GetNamespace() != "").
		Resource(kinds()[object.GroupVersionKind()].resource.Resource).Name(object.GetName()).Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}

	var table metav1.Table
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}

	var cells []string
	for i, column := range table.ColumnDefinitions {
		text := ""
		if cell := table.Rows[0].Cells[i]; cell != nil {
			text = strings.Trim(string(must(json.Marshal(cell))), `"`)
		}
		if n := utf8.RuneCountInString(text); n > maxColumn {
			t.Errorf("column %s has %d characters, want at most %d: %s", column.Name, n, maxColumn, text)
		}
		if column.Priority == 0 {
			cells = append(cells, text)
		}
	}

	return cells
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}

	return v
}
