// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strings"
	"testing"

	"crane.io/crane/internal/kube/manifest"
)

// TestFromKEDAAdvanced checks that each advanced setting of a ScaledObject is in the manifest or named.
func TestFromKEDAAdvanced(t *testing.T) {
	objects, err := manifest.ParseString(`
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {name: web}
  advanced:
    restoreToOriginalReplicaCount: true
    scalingModifiers: {formula: a + b}
    horizontalPodAutoscalerConfig: {name: mine, behavior: {scaleDown: {stabilizationWindowSeconds: 120}}}
  triggers: [{type: cron, metadata: {timezone: UTC, start: 0 8 * * *, end: 0 18 * * *, desiredReplicas: '10'}}]
`)
	if err != nil {
		t.Fatal(err)
	}

	got, _ := fromKEDA(objects[0])
	want := []string{
		"advanced.horizontalPodAutoscalerConfig.name (not known to Crane)", "advanced.restoreToOriginalReplicaCount (not known to Crane)", "advanced.scalingModifiers (not known to Crane)",
	}
	if !slices.Equal(got.Unmapped, want) || !strings.Contains(got.Manifest, "stabilizationWindowSeconds: 120") {
		t.Errorf("%+v, want %q without counterpart", got, want)
	}
}

// TestPausedByKEDA checks that only annotations by which KEDA pauses count.
func TestPausedByKEDA(t *testing.T) {
	const paused = "autoscaling.keda.sh/paused"
	for want, list := range map[bool][]map[string]string{
		true:  {{paused: "true"}, {paused: "yes"}, {paused: ""}, {paused: "false", paused + "-replicas": "3"}},
		false: {nil, {paused: "false"}, {"other": "true"}},
	} {
		for _, annotations := range list {
			o := &Object{}
			o.SetAnnotations(annotations)

			if isPausedByKEDA(o) != want {
				t.Errorf("%v: want %t", annotations, want)
			}
		}
	}
}

// TestFromPrometheusAdapterOrder checks that the keys of a ConfigMap are read in their order.
func TestFromPrometheusAdapterOrder(t *testing.T) {
	objects, err := manifest.ParseString(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}, data: {a.yaml: "seriesQuery metricsQuery: [", b.yaml: "seriesQuery metricsQuery: {"}}`)
	if err != nil {
		t.Fatal(err)
	}

	for range 20 {
		if got, _ := fromPrometheusAdapter(objects[0]); len(got.Unmapped) != 1 || !strings.HasPrefix(got.Unmapped[0], "a.yaml (") {
			t.Fatalf("fromPrometheusAdapter = %+v, want the error of a.yaml, the first key", got)
		}
	}
}

// TestFromPrometheusAdapter_RefusedRules checks that rules which Crane's adapter refuses are named and not counted as imported.
func TestFromPrometheusAdapter_RefusedRules(t *testing.T) {
	objects, err := manifest.ParseString(`
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: shop}
data:
  config.yaml: |
    rules:
    - {seriesQuery: 'a{', metricsQuery: 'x'}
    - {seriesQuery: 'b{namespace!=""}', resources: {overrides: {namespace: {resource: namespace}}}, metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'}
`)
	if err != nil {
		t.Fatal(err)
	}

	const want = "metricAdapter.rules and .externalRules of the chart: 1 rules in config.yaml"
	got, _ := fromPrometheusAdapter(objects[0])
	if got.To != want || len(got.Unmapped) != 1 || !strings.Contains(got.Unmapped[0], "rules[0]") {
		t.Errorf("fromPrometheusAdapter = %+v, want To %q and rules[0] in Unmapped", got, want)
	}
}
