// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
)

// worstTargets is the number of Deployments of a namespace whose objects' costs are measured, targetContainers the number of their containers.
const (
	worstTargets     = 10
	targetContainers = 5
)

// worstObjects returns, by kind, the API version and the spec of an object that costs as much as its validation permits; i numbers the objects of
// a namespace. Targets exist: the Deployments target-0 and, up to worstTargets, the next ones.
func worstObjects() map[string]func(namespace string, i int) (apiVersion, spec string) {
	return map[string]func(string, int) (string, string){
		"TimeSeriesPrediction": func(namespace string, i int) (string, string) {
			return "prediction.crane.io/v1alpha1", "spec:\n" + indent(fmt.Sprintf("targetRef: {apiVersion: apps/v1, kind: Deployment, name: target-%d}\n", i%worstTargets)+worstMetrics(fmt.Sprintf("%s-%d", namespace, i)))
		},
		// The selector matches every node.
		"ClusterNodePrediction": func(namespace string, i int) (string, string) {
			return "prediction.crane.io/v1alpha1", "spec:\n  nodeSelector: {kubernetes.io/os: linux}\n  template:\n    spec:\n" + indent(indent(indent(worstMetrics(fmt.Sprintf("cnp-%s-%d", namespace, i)))))
		},
		"EffectiveHorizontalPodAutoscaler": worstHorizontal,
		"EffectiveVerticalPodAutoscaler":   worstVertical,
		"Substitute": func(_ string, i int) (string, string) {
			// Its replicas differ from those of the target.
			return "autoscaling.crane.io/v1alpha1", fmt.Sprintf("spec: {replicas: 7, substituteTargetRef: {apiVersion: apps/v1, kind: Deployment, name: target-%d}}\n", i%worstTargets)
		},
		"Recommendation": func(namespace string, i int) (string, string) {
			return "analysis.crane.io/v1alpha1", fmt.Sprintf("spec:\n  adoptionType: Auto\n  type: Resource\n  completionStrategy: {completionStrategyType: Periodical, periodSeconds: 1}\n"+
				"  targetRef: {apiVersion: apps/v1, kind: Deployment, namespace: %s, name: target-%d}\n", namespace, i%worstTargets)
		},
		"Analytics": func(string, int) (string, string) {
			var b strings.Builder
			b.WriteString("spec:\n  type: Resource\n  completionStrategy: {completionStrategyType: Periodical, periodSeconds: 1}\n  resourceSelectors:\n")

			for m := range 100 {
				// Each selector lists all Deployments of the namespace.
				fmt.Fprintf(&b, "  - {apiVersion: apps/v1, kind: Deployment, labelSelector: {matchExpressions: [{key: none-%d, operator: DoesNotExist}]}}\n", m)
			}

			return "analysis.crane.io/v1alpha1", b.String()
		},
		"ConfigSet": func(string, int) (string, string) {
			var b strings.Builder
			b.WriteString("configs:\n")

			for m := range 2000 {
				fmt.Fprintf(&b, "- {targets: [{kind: Deployment, name: %q}], properties: {\"a\": \"%d\"}}\n", strings.Repeat("n", 253), m)
			}

			return "analysis.crane.io/v1alpha1", b.String()
		},
	}
}

// worstStatus returns the status that a tenant writes beside the spec; empty for none.
func worstStatus(kind string) string {
	if kind != "Recommendation" {
		return ""
	}

	var b strings.Builder
	b.WriteString(`{"status": {"recommendedValue": "resourceRequest:\n  containers:\n`)

	for c := range targetContainers {
		fmt.Fprintf(&b, `  - containerName: c%d\n    target: {cpu: 1m, memory: 4Mi}\n`, c)
	}

	return b.String() + `"}}`
}

func tenantKinds() []string { return slices.Sorted(maps.Keys(worstObjects())) }

// worstObject returns an object of a kind that costs as much as its validation permits.
func worstObject(kind, namespace string, i int) string {
	apiVersion, spec := worstObjects()[kind](namespace, i)
	annotations := ""
	if kind == "EffectiveHorizontalPodAutoscaler" {
		annotations = worstQueries(namespace, i)
	}

	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: worst-%d, namespace: %s%s}\n%s", apiVersion, kind, i, namespace, annotations, spec)
}

// worstTarget returns a Deployment that a tenant's objects refer to.
func worstTarget(namespace string, i int) string {
	var containers strings.Builder
	for c := range targetContainers {
		fmt.Fprintf(&containers, `{name: c%d, image: "pause:3.10", resources: {requests: {cpu: 3m, memory: 8Mi}}},`, c)
	}

	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: target-%[1]d, namespace: %[2]s}
spec:
  replicas: 1
  selector: {matchLabels: {app: target-%[1]d}}
  template:
    metadata: {labels: {app: target-%[1]d}, annotations: {sim.crane.io/cpu: 1m, sim.crane.io/memory: 4Mi}}
    spec: {containers: [%[3]s]}
`, i, namespace, containers.String())
}

func worstHorizontal(_ string, i int) (apiVersion, spec string) {
	var b strings.Builder
	fmt.Fprintf(&b, "spec:\n  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: target-%d}\n  minReplicas: 1\n  maxReplicas: 2\n  scaleStrategy: Preview\n", i%worstTargets)
	b.WriteString("  prediction: {predictionWindowSeconds: 86400, predictionAlgorithm: {algorithmType: auto}}\n  metrics:\n")

	for m := range 100 {
		fmt.Fprintf(&b, "  - {type: External, external: {metric: {name: metric_%d_%d}, target: {type: AverageValue, averageValue: \"1\"}}}\n", i, m)
	}

	return "autoscaling.crane.io/v1alpha1", b.String()
}

// worstQueries returns an expression for each metric of worstHorizontal.
func worstQueries(namespace string, i int) string {
	var b strings.Builder
	b.WriteString(", annotations: {")

	for m := range 100 {
		fmt.Fprintf(&b, "metric-query.autoscaling.crane.io/external.metric_%d_%d: %q, ", i, m, longExpression(fmt.Sprintf("ehpa-%s-%d-%d", namespace, i, m)))
	}

	return b.String() + "}"
}

func worstVertical(_ string, i int) (apiVersion, spec string) {
	var b strings.Builder
	fmt.Fprintf(&b, "spec:\n  targetRef: {apiVersion: apps/v1, kind: Deployment, name: target-%d}\n  updatePolicy: {updateMode: Auto}\n  resourceEstimators:\n", i%worstTargets)
	fmt.Fprintf(&b, "  - {type: External, priority: 0, config: {cpu-metric-name: metric_%[1]d, memory-metric-name: metric_%[1]d}}\n", i)

	for p, estimator := range []string{"Percentile", "Forecast", "OOM"} {
		fmt.Fprintf(&b, "  - {type: %s, priority: %d}\n", estimator, p+1)
	}

	b.WriteString("  resourcePolicy:\n    containerPolicies:\n")
	for m := range 100 {
		fmt.Fprintf(&b, "    - {containerName: c%d, minAllowed: {cpu: 1m}, maxAllowed: {cpu: \"1000\"}}\n", m)
	}

	return "autoscaling.crane.io/v1alpha1", b.String()
}

// worstMetrics returns the most metrics of a prediction, each with an expression over the longest range; all have as many bytes as one object may
// have.
func worstMetrics(name string) string {
	var b strings.Builder
	b.WriteString("predictionWindowSeconds: 86400\npredictionMetrics:\n")

	for m := range 100 {
		fmt.Fprintf(&b, "- {resourceIdentifier: m%d, type: ExpressionQuery, expressionQuery: {expression: %q}, algorithm: {algorithmType: auto}}\n", m, longExpression(fmt.Sprintf("%s-%d", name, m)))
	}

	return b.String()
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

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}

// TestEveryTenantKindIsMeasured compares the namespaced kinds of Crane with those that make bench-tenants measures, and with the table of figures.
func TestEveryTenantKindIsMeasured(t *testing.T) {
	objects, err := manifest.ReadDir(config.Manifests, "crd")
	if err != nil {
		t.Fatal(err)
	}

	page, err := os.ReadFile("../../docs/reference/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}

	var kinds []string
	for _, o := range objects {
		if scope, _, _ := unstructured.NestedString(o.Object, "spec", "scope"); scope != "Namespaced" {
			continue
		}

		kind, _, err := unstructured.NestedString(o.Object, "spec", "names", "kind")
		if err != nil {
			t.Fatal(err)
		}

		kinds = append(kinds, kind)
		if !strings.Contains(string(page), "\n| `"+kind+"` | ") {
			t.Errorf("docs/reference/threat-model.md has no figures of %s, want a row", kind)
		}
	}

	slices.Sort(kinds)
	if !slices.Equal(kinds, tenantKinds()) {
		t.Errorf("the namespaced kinds are %v, want the measured ones, %v", kinds, tenantKinds())
	}
}
