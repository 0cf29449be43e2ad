// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/prediction/nodetemplate"
)

const nodeTemplate = `predictionMetrics:
- {resourceIdentifier: cpu, type: ExpressionQuery, expressionQuery: {expression: 'sum(rate(node_cpu_seconds_total{instance="{{.metadata.name}}"}[5m]))'}}
`

// newNodePrediction returns the prediction that the template yields for node n1.
func newNodePrediction(t *testing.T) *predictionv1alpha1.TimeSeriesPrediction {
	t.Helper()

	spec, err := nodetemplate.Render(nodeTemplate, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	if err != nil {
		t.Fatal(err)
	}

	return &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: "noderesource-n1", UID: "1", Generation: 1}, Spec: spec,
	}
}

// TestNodeTemplate checks that the prediction which an agent writes for its node reads nothing beyond the template: with the agent's token a
// compromised node could otherwise read every series of Prometheus.
func TestNodeTemplate(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(predictionv1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	template := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: "noderesource-tsp-template"}, Data: map[string]string{"spec": nodeTemplate}}
	clock := testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	reads := 0
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(template, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			reads++
			return c.Get(ctx, key, o, opts...)
		}}).Build()

	b := newBench(t)
	b.NodeTemplates = &NodeTemplates{Reader: reader, Namespace: "crane-system", Clock: clock}
	refusal := func(change func(*predictionv1alpha1.TimeSeriesPrediction)) string {
		tsp := newNodePrediction(t)
		change(tsp)

		err := b.NodeTemplates.Check(t.Context(), tsp)
		if err == nil {
			return ""
		}
		if !isTemplateError(err) {
			t.Fatal(err)
		}

		for _, m := range b.observe(tsp, err) {
			if m.refused == nil {
				t.Errorf("%s is not refused, want it refused", m.identifier)
			}
		}

		if n := b.predictor.callers[callerName(client.ObjectKeyFromObject(tsp))]; n > 0 {
			t.Errorf("%d queries are sent, want none", n)
		}

		return err.Error()
	}

	if why := refusal(func(*predictionv1alpha1.TimeSeriesPrediction) {}); why != "" {
		t.Errorf("the template's own prediction is refused: %s, want it accepted", why)
	}
	if why := refusal(func(*predictionv1alpha1.TimeSeriesPrediction) {}); why != "" || reads != 2 {
		t.Errorf("the same prediction again: %q after %d reads, want 2", why, reads)
	}

	for name, change := range map[string]func(*predictionv1alpha1.TimeSeriesPrediction){
		"expression": func(p *predictionv1alpha1.TimeSeriesPrediction) {
			p.Generation, p.Spec.PredictionMetrics[0].ExpressionQuery.Expression = 2, `sum(rate(node_cpu_seconds_total{instance="n2"}[5m]))`
		},
		"metric": func(p *predictionv1alpha1.TimeSeriesPrediction) {
			p.Generation = 2
			p.Spec.PredictionMetrics = append(p.Spec.PredictionMetrics, predictionv1alpha1.PredictionMetric{
				ResourceIdentifier: "all", Type: predictionv1alpha1.ExpressionQueryMetricType, ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: "secrets_total"},
			})
		},
		"target":       func(p *predictionv1alpha1.TimeSeriesPrediction) { p.Generation, p.Spec.TargetRef.Name = 2, "n2" },
		"unknown node": func(p *predictionv1alpha1.TimeSeriesPrediction) { p.Name, p.UID = "noderesource-n9", "9" },
		"other objects": func(p *predictionv1alpha1.TimeSeriesPrediction) {
			p.UID, p.Spec.PredictionMetrics[0].ResourceIdentifier = "2", "x"
		},
	} {
		if why := refusal(change); why == "" {
			t.Errorf("%s: is not refused, want it refused", name)
		}
	}

	if why := refusal(func(p *predictionv1alpha1.TimeSeriesPrediction) { p.Namespace = "shop"; p.Generation = 2 }); why != "" {
		t.Errorf("a prediction of the same name in a tenant's namespace: %s, want it accepted", why)
	}
	if err := reader.Delete(t.Context(), template); err != nil {
		t.Fatal(err)
	}

	clock.Step(templateAge)
	if why := refusal(func(*predictionv1alpha1.TimeSeriesPrediction) {}); !strings.Contains(why, "There is no template") {
		t.Errorf("Check without a template = %q, want a refusal that names it", why)
	}
}
