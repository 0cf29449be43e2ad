// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/craned/admission/validation"
)

// FactReader knows what a verdict needs beside the object. What it cannot find out in time it leaves out: no verdict waits.
type FactReader interface {
	Facts(ctx context.Context) validation.Facts
}

// factsTimeout bounds the wait for a cache that is just starting.
const factsTimeout = 2 * time.Second

// CachedFacts reads facts from a cache: whoever can reach the port may ask, and must not make craned ask the API server.
type CachedFacts struct {
	// Namespace is Crane's own.
	Namespace string
	// Cache has the AvoidanceActions; nil where they do not matter.
	Cache client.Reader
	// ValidateRecommender says why a recommender could not run with the settings in force; nil where that is not known.
	ValidateRecommender func(analysisv1alpha1.Recommender) error
}

// Facts implements FactReader.
func (c CachedFacts) Facts(ctx context.Context) validation.Facts {
	f := validation.Facts{Namespace: c.Namespace, ValidateRecommender: c.ValidateRecommender}
	if c.Cache == nil {
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()
	var actions ensurancev1alpha1.AvoidanceActionList
	if err := c.Cache.List(ctx, &actions); err == nil { // Else they are not known.
		f.Actions = make(map[string]ensurancev1alpha1.AvoidanceActionSpec, len(actions.Items))
		for _, a := range actions.Items {
			f.Actions[a.Name] = a.Spec
		}
	}
	return f
}
