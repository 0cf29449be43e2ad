// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
)

// worstKinds are the kinds that a tenant may create.
var worstKinds = []string{
	"TimeSeriesPrediction", "EffectiveHorizontalPodAutoscaler", "EffectiveVerticalPodAutoscaler", "Recommendation", "Analytics",
}

// worstObject returns an object of a kind that costs as much as its validation permits.
func worstObject(kind, namespace string, i int) string {
	text := func(apiVersion, spec string) string {
		return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: worst-%d, namespace: %s}\nspec:\n%s", apiVersion, kind, i, namespace, spec)
	}
	var b strings.Builder
	switch kind {
	case "TimeSeriesPrediction":
		// The most metrics, each with an expression of the greatest length over the longest range.
		fmt.Fprintf(&b, "  targetRef: {apiVersion: apps/v1, kind: Deployment, name: none-%d}\n  predictionWindowSeconds: 86400\n  predictionMetrics:\n", i)
		for m := range 100 {
			fmt.Fprintf(&b, "  - {resourceIdentifier: m%d, type: ExpressionQuery, expressionQuery: {expression: %q}, algorithm: {algorithmType: auto}}\n", m, longExpression(fmt.Sprintf("%s-%d-%d", namespace, i, m)))
		}
		return text("prediction.crane.io/v1alpha1", b.String())
	case "EffectiveHorizontalPodAutoscaler":
		fmt.Fprintf(&b, "  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: none-%d}\n  minReplicas: 1\n  maxReplicas: 1000\n", i)
		b.WriteString("  prediction: {predictionWindowSeconds: 86400, predictionAlgorithm: {algorithmType: auto}}\n  metrics:\n")
		for m := range 100 {
			fmt.Fprintf(&b, "  - {type: External, external: {metric: {name: metric_%d_%d}, target: {type: AverageValue, averageValue: \"1\"}}}\n", i, m)
		}
		return text("autoscaling.crane.io/v1alpha1", b.String())
	case "EffectiveVerticalPodAutoscaler":
		fmt.Fprintf(&b, "  targetRef: {apiVersion: apps/v1, kind: Deployment, name: none-%d}\n", i)
		b.WriteString("  updatePolicy: {updateMode: Auto}\n  resourcePolicy:\n    containerPolicies:\n")
		for m := range 100 {
			fmt.Fprintf(&b, "    - {containerName: c%d, minAllowed: {cpu: 1m}, maxAllowed: {cpu: \"1000\"}}\n", m)
		}
		return text("autoscaling.crane.io/v1alpha1", b.String())
	case "Recommendation":
		fmt.Fprintf(&b, "  adoptionType: Auto\n  type: Resource\n  completionStrategy: {completionStrategyType: Periodical, periodSeconds: 1}\n")
		fmt.Fprintf(&b, "  targetRef: {apiVersion: apps/v1, kind: Deployment, namespace: %s, name: none-%d}\n", namespace, i)
		return text("analysis.crane.io/v1alpha1", b.String())
	default:
		b.WriteString("  type: Resource\n  completionStrategy: {completionStrategyType: Periodical, periodSeconds: 1}\n  resourceSelectors:\n")
		for m := range 100 {
			fmt.Fprintf(&b, "  - {apiVersion: apps/v1, kind: Deployment, name: none-%d}\n", m)
		}
		return text("analysis.crane.io/v1alpha1", b.String())
	}
}

// longExpression returns an expression that differs by name: 100 of them have as many bytes as one object may have.
func longExpression(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `sum(max_over_time({name=~"%s|.+"}[7d]))`, name)
	for i := 0; b.Len() < 600; i++ {
		fmt.Fprintf(&b, ` + sum(max_over_time({__name__=~".+",x!="%d"}[7d]))`, i)
	}
	return b.String()
}
