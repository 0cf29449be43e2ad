// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"crane.io/crane/pkg/nodeload"
)

// TestUsageOfRecommendation_Hostile checks that a Recommendation says nothing about workloads of other namespaces, and that its amounts are bounded.
func TestUsageOfRecommendation_Hostile(t *testing.T) {
	recommendation := func(targetNamespace, cpu, memory string) *unstructured.Unstructured {
		target := map[string]any{"kind": "Deployment", "name": "web"}
		if targetNamespace != "" {
			target["namespace"] = targetNamespace
		}

		container := "{containerName: app, target: {cpu: '" + cpu + "', memory: '" + memory + "'}}"
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": "shop", "name": "r"},
			"spec":     map[string]any{"type": typeResource, "targetRef": target},
			"status":   map[string]any{"recommendedValue": "resourceRequest: {containers: [" + container + ", " + container + "]}"},
		}}
	}

	for name, c := range map[string]struct {
		object *unstructured.Unstructured
		want   nodeload.Amount
		ok     bool
	}{
		"own namespace":     {recommendation("shop", "100m", "1Ki"), nodeload.Amount{CPU: 200, Memory: 2048}, true},
		"no namespace":      {recommendation("", "100m", "1Ki"), nodeload.Amount{CPU: 200, Memory: 2048}, true},
		"another namespace": {recommendation("pay", "100m", "1Ki"), nodeload.Amount{}, false},
		"negative":          {recommendation("shop", "-100m", "-1Ki"), nodeload.Amount{}, true},
		"absurd":            {recommendation("shop", "9E", "7E"), nodeload.Amount{}, true},
	} {
		w, got, ok := usageOfRecommendation(c.object)
		if ok != c.ok || got != c.want || ok && w.Namespace != "shop" {
			t.Errorf("%s: usageOfRecommendation = %+v, %+v, %t, want %+v of a workload in shop, %t", name, w, got, ok, c.want, c.ok)
		}
	}
}
