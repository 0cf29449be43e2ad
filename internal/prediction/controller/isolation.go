// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/metrics/promscope"
	"crane.io/crane/internal/prediction/controller/canonical"
	"crane.io/crane/internal/prediction/predictor"
)

// Isolation restricts predictions to the series of their own namespace. Without it every user who may create a prediction can read all series
// through craned.
type Isolation struct {
	Enabled bool
	// Label is the label of series with the namespace that they belong to.
	Label string
	// SystemNamespace is Crane's own namespace. Its predictions, and those of the namespaces in Unrestricted, read all series.
	SystemNamespace string
	Unrestricted    []string
	// ClusterScope honours spec.queryScope Cluster. The admission policy crane-prediction-query-scope must be in force then.
	ClusterScope bool
}

// restricts reports whether a prediction reads its own namespace only.
func (i Isolation) restricts(tsp *predictionv1alpha1.TimeSeriesPrediction) bool {
	return i.Enabled && tsp.Namespace != i.SystemNamespace && !slices.Contains(i.Unrestricted, tsp.Namespace) &&
		(!i.ClusterScope || tsp.Spec.QueryScope != predictionv1alpha1.QueryScopeCluster)
}

// emptyReason explains to users why a query may have no series.
func (i Isolation) emptyReason(tsp *predictionv1alpha1.TimeSeriesPrediction, q predictor.Query) string {
	const reason = "no series for query"
	if q.Resource != "" || !i.restricts(tsp) {
		return reason
	}
	lift := "spec.queryScope: " + predictionv1alpha1.QueryScopeCluster + ", which needs the verb query-cluster, reads all series"
	if !i.ClusterScope {
		lift = "an administrator can let craned honour spec.queryScope: " + predictionv1alpha1.QueryScopeCluster +
			" or list the namespace in --tenant-unrestricted-namespaces"
	}
	return fmt.Sprintf("%s: under tenant isolation only series with %s=%q are read; %s", reason, i.Label, tsp.Namespace, lift)
}

// restrict returns the query limited to the namespace of the prediction, or an error if it cannot be. Errors are written for users.
func (i Isolation) restrict(tsp *predictionv1alpha1.TimeSeriesPrediction, q predictor.Query) (predictor.Query, error) {
	if !i.restricts(tsp) {
		return q, nil
	}
	if q.Resource != "" {
		if q.Target.Namespace != tsp.Namespace {
			return q, fmt.Errorf("targetRef: %s is not in namespace %s, and predictions are isolated: set spec.queryScope to %s, which needs the right to do so",
				q.Target, tsp.Namespace, predictionv1alpha1.QueryScopeCluster)
		}
		return q, nil
	}
	text, err := promscope.Restrict(q.Expression, i.Label, tsp.Namespace)
	if err != nil {
		return q, fmt.Errorf("the expression cannot be restricted to namespace %s: %w", tsp.Namespace, err)
	}
	q.Expression = canonical.Expression(text)
	return q, nil
}
