// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	rule = `{apiVersion: analysis.crane.io/v1alpha1, kind: RecommendationRule, metadata: {name: r}, spec: {namespaceSelector: {any: true},
  resourceSelectors: [{kind: Deployment%s}], recommenders: [{name: Resource}%s]%s}}`
	ehpa = `{apiVersion: autoscaling.crane.io/v1alpha1, kind: EffectiveHorizontalPodAutoscaler, metadata: {name: e}, spec: {minReplicas: 2, maxReplicas: 9,
  scaleTargetRef: {kind: Deployment, name: x}%s}}`
	evpa = `{apiVersion: autoscaling.crane.io/v1alpha1, kind: EffectiveVerticalPodAutoscaler, metadata: {name: e}, spec: {targetRef: {kind: StatefulSet, name: x}%s}}`
	tsp  = `{apiVersion: prediction.crane.io/v1alpha1, kind: TimeSeriesPrediction, metadata: {name: p}, spec: {predictionWindowSeconds: 3600,
  targetRef: {name: x%s}, predictionMetrics: [{resourceIdentifier: a, %s}]}}`
	nodeQOS = `{apiVersion: ensurance.crane.io/v1alpha1, kind: NodeQOS, metadata: {name: nodes}, spec: {rules: [
  {name: one, actionName: act, metricRule: {name: cpu_total_usage, value: 4000}}%s]%s}}`
	podQOS = `{apiVersion: ensurance.crane.io/v1alpha1, kind: PodQOS, metadata: {name: p}, spec: {%s}}`
	action = `{apiVersion: ensurance.crane.io/v1alpha1, kind: AvoidanceAction, metadata: {name: act}, spec: {%s}}`
	nrt    = `{apiVersion: topology.crane.io/v1alpha1, kind: NodeResourceTopology, metadata: {name: node-a}, craneManagerPolicy: {cpuManagerPolicy: Static},
  zones: [{name: node0, type: Node%s}]}`
)

// admissionCase is an object and the expected response to its creation.
type admissionCase struct {
	text string
	// refused is a part of the expected error, or empty.
	refused string
	// warned contains parts of the expected warnings.
	warned []string
	// quiet means that no warning is expected.
	quiet bool
}

func admissionCases() map[string]admissionCase {
	return map[string]admissionCase{
		"rule":                     {text: fmt.Sprintf(rule, "", "", ""), quiet: true},
		"rule, selector":           {text: fmt.Sprintf(rule, ", labelSelector: {matchLabels: {a: '!'}}", "", ""), refused: "spec.resourceSelectors[0].labelSelector.matchLabels"},
		"rule, interval":           {text: fmt.Sprintf(rule, "", "", ", runInterval: 99999d24h1.5"), refused: "spec.runInterval"},
		"rule, recommender twice":  {text: fmt.Sprintf(rule, "", ", {name: Resource}", ""), refused: "spec.recommenders[1].name: Duplicate value"},
		"rule, recommender":        {text: fmt.Sprintf(rule, "", ", {name: Astrology}", ""), warned: []string{"spec.recommenders[1]: cannot run: unknown recommender"}},
		"rule, nodes by namespace": {text: strings.Replace(fmt.Sprintf(strings.Replace(rule, "Deployment", "Node", 1), "", "", ""), "any: true", "matchNames: [a]", 1), warned: []string{"found only with namespaceSelector.any"}},
		"rule, nothing":            {text: "{apiVersion: analysis.crane.io/v1alpha1, kind: RecommendationRule, metadata: {name: r}, spec: {resourceSelectors: [], recommenders: [], namespaceSelector: {}}}", warned: []string{"nothing is selected", "nothing is recommended", "selects no namespace"}},
		"analytics":                {text: "{apiVersion: analysis.crane.io/v1alpha1, kind: Analytics, metadata: {name: a}, spec: {type: Resource, resourceSelectors: [{kind: Deployment, apiVersion: a/b/c}]}}", refused: "spec.resourceSelectors[0].apiVersion"},
		"analytics, period":        {text: "{apiVersion: analysis.crane.io/v1alpha1, kind: Analytics, metadata: {name: a}, spec: {type: Resource, resourceSelectors: [{kind: Deployment}], completionStrategy: {completionStrategyType: Once, periodSeconds: 60}}}", warned: []string{"spec.completionStrategy.periodSeconds: has no effect"}},
		"analytics, short period":  {text: "{apiVersion: analysis.crane.io/v1alpha1, kind: Analytics, metadata: {name: a}, spec: {type: Resource, resourceSelectors: [{kind: Deployment}], completionStrategy: {completionStrategyType: Periodical, periodSeconds: 60}}}", warned: []string{"spec.completionStrategy.periodSeconds: counts as 600"}},
		"recommendation elsewhere": {text: "{apiVersion: analysis.crane.io/v1alpha1, kind: Recommendation, metadata: {name: r}, spec: {type: Resource, targetRef: {kind: Deployment, name: x, namespace: kube-system}}}", refused: "must be the namespace of the Recommendation"},
		"recommendation, auto":     {text: "{apiVersion: analysis.crane.io/v1alpha1, kind: Recommendation, metadata: {name: r}, spec: {type: Service, adoptionType: Auto, targetRef: {kind: Service, name: x, namespace: default}}}", warned: []string{"Auto applies nothing for Service"}},
		"config set":               {text: "{apiVersion: analysis.crane.io/v1alpha1, kind: ConfigSet, metadata: {name: c}, configs: []}", warned: []string{"has no effect"}},

		"ehpa":                   {text: fmt.Sprintf(ehpa, ", crons: [{name: a, start: 0 8 * * *, end: 0 9 * * *, targetReplicas: 5, timezone: Asia/Shanghai}]"), quiet: true},
		"ehpa, zone":             {text: fmt.Sprintf(ehpa, ", crons: [{name: a, start: 0 8 * * *, end: 0 9 * * *, targetReplicas: 5, timezone: Mars/Base}]"), refused: "spec.crons[0].timezone"},
		"ehpa, date":             {text: fmt.Sprintf(ehpa, ", crons: [{name: a, start: 0 8 30 2 *, end: 0 9 * * *, targetReplicas: 5}]"), refused: "names no date that there is"},
		"ehpa, never closes":     {text: fmt.Sprintf(ehpa, ", crons: [{name: a, start: 0 8 * * *, end: 0 8 * * *, targetReplicas: 5}]"), refused: "would never close"},
		"ehpa, every":            {text: fmt.Sprintf(ehpa, ", crons: [{name: a, start: '@every 6h', end: 0 8 * * *, targetReplicas: 5}]"), refused: "spec.crons[0]"},
		"ehpa, name twice":       {text: fmt.Sprintf(ehpa, ", crons: [{name: a, start: 0 8 * * *, end: 0 9 * * *, targetReplicas: 5}, {name: a, start: 0 8 * * *, end: 0 9 * * *, targetReplicas: 5}]"), refused: "spec.crons[1]: Duplicate value"},
		"ehpa, bounds":           {text: fmt.Sprintf(ehpa, ", crons: [{name: a, start: 0 8 * * *, end: 0 9 * * *, targetReplicas: 50}, {name: b, start: 0 8 * * *, end: 0 9 * * *, targetReplicas: 1}], specificReplicas: 3"), warned: []string{"more than maxReplicas", "never has fewer than 2", "spec.specificReplicas: has no effect"}},
		"ehpa, algorithm":        {text: fmt.Sprintf(ehpa, ", prediction: {predictionAlgorithm: {algorithmType: percentile, percentile: {histogram: {bucketSize: '1'}}}}"), refused: "spec.prediction.predictionAlgorithm.percentile"},
		"ehpa, other algorithm":  {text: fmt.Sprintf(ehpa, ", prediction: {predictionAlgorithm: {algorithmType: auto, dsp: {historyLength: 7d}}}"), warned: []string{"predictionAlgorithm.dsp: has no effect"}},
		"ehpa, no algorithm":     {text: fmt.Sprintf(ehpa, ", prediction: {}"), warned: []string{"spec.prediction: has no effect"}},
		"ehpa, query":            {text: strings.Replace(fmt.Sprintf(ehpa, ", prediction: {predictionAlgorithm: {algorithmType: auto}}"), "name: e}", "name: e, annotations: {metric-query.autoscaling.crane.io/resource.cpu: sum(}}", 1), warned: []string{"metadata.annotations[metric-query.autoscaling.crane.io/resource.cpu]: Prometheus could not read this"}},
		"ehpa, metric selector":  {text: fmt.Sprintf(ehpa, ", metrics: [{type: External, external: {metric: {name: q, selector: {matchLabels: {a: ' '}}}, target: {type: Value, value: 1}}}]"), refused: "spec.metrics[0].external.metric.selector"},
		"evpa":                   {text: fmt.Sprintf(evpa, ", resourcePolicy: {containerPolicies: [{containerName: a, minAllowed: {cpu: 100m}, maxAllowed: {cpu: 2}}]}"), quiet: true},
		"evpa, bounds":           {text: fmt.Sprintf(evpa, ", resourcePolicy: {containerPolicies: [{containerName: a, minAllowed: {cpu: 3}, maxAllowed: {cpu: 2}}]}"), refused: "minAllowed"},
		"evpa, thresholds":       {text: fmt.Sprintf(evpa, ", resourcePolicy: {containerPolicies: [{containerName: a, scaleUpPolicy: {metricThresholds: {cpu: {utilization: 30}}}, scaleDownPolicy: {metricThresholds: {cpu: {utilization: 40}}}}]}"), refused: "raised and lowered in turns"},
		"evpa, off":              {text: fmt.Sprintf(evpa, ", resourcePolicy: {containerPolicies: [{containerName: a, controlledResources: [ephemeral-storage], scaleUpPolicy: {mode: 'Off'}, scaleDownPolicy: {mode: 'Off'}}]}, updatePolicy: {updateMode: 'Off', minReplicas: 2}"), warned: []string{"are never changed", "ephemeral-storage", "minReplicas: has no effect"}},
		"evpa, estimators twice": {text: fmt.Sprintf(evpa, ", resourceEstimators: [{type: OOM}, {type: OOM}]"), refused: "spec.resourceEstimators[1].type: Duplicate value"},

		"tsp":                  {text: fmt.Sprintf(tsp, ", kind: Deployment", "type: ExpressionQuery, expressionQuery: {expression: 'sum(rate(x[5m]))'}"), quiet: true},
		"tsp, no PromQL":       {text: fmt.Sprintf(tsp, "", "type: ExpressionQuery, expressionQuery: {expression: 'sum(rate(x[5m])'}"), warned: []string{"Prometheus could not read this"}},
		"tsp, a range":         {text: fmt.Sprintf(tsp, "", "type: ExpressionQuery, expressionQuery: {expression: 'x[5m]'}"), warned: []string{"gives a range vector"}},
		"tsp, no kind":         {text: fmt.Sprintf(tsp, "", "type: ResourceQuery, resourceQuery: cpu"), refused: "spec.targetRef.kind"},
		"tsp, matcher":         {text: fmt.Sprintf(tsp, "", "type: MetricQuery, metricQuery: {metricName: m, labels: [{key: k, operator: '=~', value: ['(']}]}"), refused: "spec.predictionMetrics[0].metricQuery.labels[0]"},
		"tsp, other query":     {text: fmt.Sprintf(tsp, "", "type: MetricQuery, metricQuery: {metricName: m}, expressionQuery: {expression: x}"), warned: []string{"expressionQuery: has no effect"}},
		"tsp, algorithm":       {text: fmt.Sprintf(tsp, "", "type: MetricQuery, metricQuery: {metricName: m}, algorithm: {algorithmType: percentile, percentile: {histogram: {bucketSize: '1'}}}"), refused: "algorithm.percentile"},
		"cnp":                  {text: "{apiVersion: prediction.crane.io/v1alpha1, kind: ClusterNodePrediction, metadata: {name: c}, spec: {nodeSelector: {'a b': c}}}", refused: "spec.nodeSelector"},
		"cnp without template": {text: "{apiVersion: prediction.crane.io/v1alpha1, kind: ClusterNodePrediction, metadata: {name: c}, spec: {}}", warned: []string{"nothing is forecast"}},

		"node qos":             {text: fmt.Sprintf(nodeQOS, "", ""), warned: []string{"spec.rules[0].actionName: there is no AvoidanceAction act yet"}},
		"node qos, selector":   {text: fmt.Sprintf(nodeQOS, "", ", selector: {matchLabels: {a/b/c: d}}"), refused: "spec.selector.matchLabels"},
		"node qos, metric":     {text: fmt.Sprintf(nodeQOS, ", {name: two, actionName: act, metricRule: {name: cpu_usage, value: 1}}", ""), warned: []string{"the agent measures nothing of this name"}},
		"node qos, value":      {text: fmt.Sprintf(nodeQOS, ", {name: two, actionName: act, metricRule: {name: memory_total_usage, value: 0.0}}", ""), refused: "spec.rules[1].metricRule.value"},
		"node qos, percentage": {text: fmt.Sprintf(nodeQOS, ", {name: two, actionName: act, metricRule: {name: cpu_total_utilization, value: 100}}", ""), warned: []string{"the rule never fires"}},
		"node qos, twice":      {text: fmt.Sprintf(nodeQOS, ", {name: two, actionName: act, metricRule: {name: cpu_total_usage, value: 4}}, {name: three, actionName: act, metricRule: {name: cpu_total_usage, value: 4}}", ""), warned: []string{"rule three says the same as rule two"}},
		"node qos, unused":     {text: fmt.Sprintf(nodeQOS, "", ", netLimits: {rxBpsMin: 1}, memLimit: {}"), warned: []string{"spec.netLimits: has no effect", "spec.memLimit: has no effect"}},
		"pod qos, no pod":      {text: fmt.Sprintf(podQOS, "allowedActions: [act, act]"), warned: []string{"matches no pod", "there is no AvoidanceAction act yet", "occurs earlier in the list"}},
		"pod qos, every pod":   {text: fmt.Sprintf(podQOS, "scopeSelector: {}"), warned: []string{"matches every pod"}},
		"pod qos, range":       {text: fmt.Sprintf(podQOS, "scopeSelector: {matchExpressions: [{scopeName: Priority, operator: In, values: ['3000-1000']}]}"), refused: "the range is empty"},
		"pod qos, number":      {text: fmt.Sprintf(podQOS, "scopeSelector: {matchExpressions: [{scopeName: Priority, operator: In, values: ['9999999999']}]}"), refused: "must be a number"},
		"pod qos, excluded":    {text: fmt.Sprintf(podQOS, "scopeSelector: {matchExpressions: [{scopeName: Namespace, operator: In, values: [a]}, {scopeName: Namespace, operator: NotIn, values: [a, b]}]}"), warned: []string{"exclude all of its values"}},
		"pod qos, unused":      {text: fmt.Sprintf(podQOS, "labelSelector: {matchLabels: {a: b}}, resourceQOS: {memoryQOS: {}, cpuQOS: {cpuBurst: {}}}"), warned: []string{"memoryQOS: has no effect", "cpuBurst: has no effect"}},
		"action":               {text: fmt.Sprintf(action, "throttle: {cpuThrottle: {stepCPURatio: 10, minCPURatio: 10}}"), quiet: true},
		"action, no step":      {text: fmt.Sprintf(action, "throttle: {cpuThrottle: {minCPURatio: 10}}"), warned: []string{"never throttles"}},
		"topology":             {text: fmt.Sprintf(nrt, ", resources: {capacity: {cpu: 4}, allocatable: {cpu: 4}}"), quiet: true},
		"topology, too much":   {text: fmt.Sprintf(nrt, ", resources: {capacity: {cpu: 4}, allocatable: {cpu: 5}}"), refused: "allocatable[cpu]"},
		"topology, parent":     {text: fmt.Sprintf(nrt, ", parent: node7"), refused: "zones[0].parent"},
	}
}

func TestEveryKindIsValidated(t *testing.T) {
	startWebhooks(t, "--controllers=timeseriesprediction,effectivehpa,effectivevpa")
	// The first request fills the cache of actions.
	eventually(t, "the cache of actions is filled", func(ctx context.Context) error {
		_, warned, err := createDryRun(ctx, fmt.Sprintf(nodeQOS, "", ""))
		if err == nil && len(warned) == 0 {
			err = errors.New("no warning about a missing action")
		}

		return err
	})

	for name, q := range admissionCases() {
		t.Run(name, func(t *testing.T) {
			_, warned, err := createDryRun(t.Context(), q.text)
			switch {
			case q.refused == "" && err != nil:
				t.Errorf("rejected: %v", err)
			case q.refused != "" && (err == nil || !strings.Contains(err.Error(), q.refused)):
				t.Errorf("error %v, want %q in it", err, q.refused)
			}

			for _, part := range q.warned {
				if !containsPart(warned, part) {
					t.Errorf("warnings %q, want %q in one of them", warned, part)
				}
			}

			if q.quiet && len(warned) > 0 {
				t.Errorf("warnings %q, want none", warned)
			}
		})
	}
}

func TestWarningsEndWithTheirReason(t *testing.T) {
	startWebhooks(t)
	createUntilEnd(t, fmt.Sprintf(action, "throttle: {cpuThrottle: {stepCPURatio: 10, minCPURatio: 10}}"))
	eventually(t, "the action is in the cache", func(ctx context.Context) error {
		_, warned, err := createDryRun(ctx, fmt.Sprintf(nodeQOS, "", ""))
		if err == nil && len(warned) > 0 {
			err = fmt.Errorf("warnings %q", warned)
		}

		return err
	})
}

func TestDefaults(t *testing.T) {
	startWebhooks(t)
	for name, d := range map[string]struct {
		text string
		want map[string]any
	}{
		"ehpa": {
			fmt.Sprintf(ehpa, ", crons: [{name: a, start: 0 8 * * *, end: 0 9 * * *, targetReplicas: 5}], "+
				"metrics: [{type: Pods, pods: {metric: {name: q}, target: {type: AverageValue, averageValue: 1000m}}}]"),
			map[string]any{"spec.metrics[0].pods.target.averageValue": "1000m", "spec.scaleTargetRef.apiVersion": "apps/v1", "spec.crons[0].timezone": nil},
		},
		"evpa": {fmt.Sprintf(evpa, ""), map[string]any{"spec.targetRef.apiVersion": "apps/v1"}},
		"tsp": {
			fmt.Sprintf(tsp, ", kind: StatefulSet", "type: ResourceQuery, resourceQuery: cpu"),
			map[string]any{"spec.targetRef.apiVersion": "apps/v1", "spec.targetRef.namespace": "default"},
		},
		"tsp of a node": {
			fmt.Sprintf(tsp, ", kind: Node", "type: ResourceQuery, resourceQuery: cpu"),
			map[string]any{"spec.targetRef.apiVersion": "v1", "spec.targetRef.namespace": nil},
		},
		"analytics": {
			"{apiVersion: analysis.crane.io/v1alpha1, kind: Analytics, metadata: {name: a}, spec: {type: Resource, resourceSelectors: [{kind: Deployment}], completionStrategy: {completionStrategyType: Periodical}}}",
			map[string]any{"spec.completionStrategy.periodSeconds": int64(86400)},
		},
		"recommendation": {
			"{apiVersion: analysis.crane.io/v1alpha1, kind: Recommendation, metadata: {name: r}, spec: {type: Resource, targetRef: {kind: CronJob, name: x, namespace: default}, completionStrategy: {completionStrategyType: Once}}}",
			map[string]any{"spec.targetRef.apiVersion": "batch/v1", "spec.completionStrategy.periodSeconds": nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := createDryRun(t.Context(), d.text)
			if err != nil {
				t.Fatal(err)
			}

			for path, want := range d.want {
				if have := at(got.Object, path); have != want {
					t.Errorf("%s is %v, want %v", path, have, want)
				}
			}
		})
	}
}

// at returns the value at a path such as a.b[0].c.
func at(v any, path string) any {
	for step := range strings.SplitSeq(strings.ReplaceAll(path, "[0]", ".0"), ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[step]
		case []any:
			v = x[0]
		default:
			return nil
		}
	}

	return v
}

// TestExistingFaults checks updates of an object that was invalid before the webhooks were installed: other fields may change,
// faults may be corrected, and new faults are rejected.
func TestExistingFaults(t *testing.T) {
	wrong := ", crons: [{name: a, start: 0 8 30 2 *, end: 0 9 * * *, targetReplicas: 5, timezone: Mars/Base}]"
	old := createUntilEnd(t, strings.Replace(fmt.Sprintf(ehpa, wrong), "name: e}", "name: old}", 1))
	startWebhooks(t)

	label := func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "b"}) }
	if _, warned, err := update(t.Context(), old, label); err != nil || len(warned) > 0 {
		t.Errorf("labels: %v, warnings %q, want none", err, warned)
	}

	set := func(path string, v any) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(o.Object, v, strings.Split(path, ".")...); err != nil {
				t.Error(err)
			}
		}
	}

	_, warned, err := update(t.Context(), old, set("spec.maxReplicas", int64(8)))
	if err != nil || !containsPart(warned, "accepted because it was so before") {
		t.Errorf("another field: %v, warnings %q, want a warning", err, warned)
	}

	cron := func(name, zone, start string) any {
		return map[string]any{"name": name, "timezone": zone, "start": start, "end": "0 9 * * *", "targetReplicas": int64(5)}
	}

	if _, _, err := update(t.Context(), old, set("spec.crons", []any{cron("a", "Mars/Other", "0 8 30 2 *")})); err == nil || !strings.Contains(err.Error(), "Mars/Other") {
		t.Errorf("new fault: %v", err)
	}
	if _, _, err := update(t.Context(), old, set("spec.crons", []any{cron("b", "UTC", "0 7 * * *"), cron("a", "Mars/Base", "0 8 30 2 *")})); err != nil {
		t.Errorf("valid item before it in the list: %v", err)
	}
	if _, _, err := update(t.Context(), old, set("spec.crons", []any{cron("a", "UTC", "0 8 * * *")})); err != nil {
		t.Errorf("correction: %v", err)
	}

	if _, _, err := update(t.Context(), old, set("spec.crons", []any{cron("a", "Mars/Base", "0 8 * * *")})); err == nil {
		t.Error("a corrected fault was accepted again, want an error")
	}
}
