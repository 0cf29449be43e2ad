// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

// TestQueryScope: queryScope Cluster is for those who hold its verb in the whole cluster, in predictions and in templates of them.
func TestQueryScope(t *testing.T) {
	tenant, namespace := newTenant(t)
	const policy = "crane-prediction-query-scope"
	spec := func(scope predictionv1alpha1.QueryScope) predictionv1alpha1.TimeSeriesPredictionSpec {
		return predictionv1alpha1.TimeSeriesPredictionSpec{
			TargetRef: &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, QueryScope: scope, PredictionWindowSeconds: 3600,
			PredictionMetrics: []predictionv1alpha1.PredictionMetric{{
				ResourceIdentifier: "x", Type: predictionv1alpha1.ExpressionQueryMetricType, ExpressionQuery: &predictionv1alpha1.ExpressionQuery{Expression: "up"},
			}},
		}
	}

	tsp := func(scope predictionv1alpha1.QueryScope) *predictionv1alpha1.TimeSeriesPrediction {
		return &predictionv1alpha1.TimeSeriesPrediction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "p-"}, Spec: spec(scope)}
	}
	cnp := func(scope predictionv1alpha1.QueryScope) *predictionv1alpha1.ClusterNodePrediction {
		template := spec(scope)
		template.TargetRef = nil
		return &predictionv1alpha1.ClusterNodePrediction{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "c-"},
			Spec:       predictionv1alpha1.ClusterNodePredictionSpec{Template: &predictionv1alpha1.TimeSeriesPredictionTemplate{Spec: template}},
		}
	}

	awaitRefused(t, policy, func(ctx context.Context) error {
		return tenant.Create(ctx, tsp(predictionv1alpha1.QueryScopeCluster), client.DryRunAll)
	})

	if err := checkRefused(tenant.Create(t.Context(), cnp(predictionv1alpha1.QueryScopeCluster)), policy); err != nil {
		t.Errorf("a template: %v", err)
	}

	for _, o := range []client.Object{
		tsp(""), tsp(predictionv1alpha1.QueryScopeNamespace), cnp(""), &predictionv1alpha1.ClusterNodePrediction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "empty"}},
	} {
		if err := tenant.Create(t.Context(), o); err != nil {
			t.Errorf("%T without Cluster: %v", o, err)
		}
	}

	allowed := tsp(predictionv1alpha1.QueryScopeCluster)
	for user, c := range map[string]client.Client{"an administrator": admin, "craned": newCraned(t)} {
		allowed = tsp(predictionv1alpha1.QueryScopeCluster)
		if err := c.Create(t.Context(), allowed); err != nil {
			t.Errorf("by %s: %v", user, err)
		}
	}

	// A user without the verb cannot change the query of an object with the scope, but can change its labels.
	changed := allowed.DeepCopy()
	changed.Spec.PredictionMetrics[0].ExpressionQuery.Expression = "secret"
	if err := checkRefused(tenant.Patch(t.Context(), changed, client.MergeFrom(allowed)), policy); err != nil {
		t.Errorf("another query: %v", err)
	}

	labeled := allowed.DeepCopy()
	labeled.Labels = map[string]string{"a": "b"}
	if err := tenant.Patch(t.Context(), labeled, client.MergeFrom(allowed)); err != nil {
		t.Errorf("a label: %v", err)
	}
}
