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

// FactReader reads the facts that a validation needs besides the object. It leaves out facts that it cannot read in time, so that
// no validation waits.
type FactReader interface {
	Facts(ctx context.Context) validation.Facts
}

// factsTimeout is the maximum wait for a cache that is starting.
const factsTimeout = 2 * time.Second

// CachedFacts reads facts from a cache, because every client that reaches the port can send requests, and must not cause requests
// to the API server.
type CachedFacts struct {
	// Namespace is Crane's own namespace.
	Namespace string
	// Cache has the AvoidanceActions; nil where they do not matter.
	Cache client.Reader
	// ValidateRecommender returns the error with which a recommender would fail under the current configuration; nil if that is
	// unknown.
	ValidateRecommender func(analysisv1alpha1.Recommender) error
	// DisabledKinds are the kinds that no controller processes, with the reason.
	DisabledKinds map[string]string
}

// Facts implements FactReader.
func (c CachedFacts) Facts(ctx context.Context) validation.Facts {
	f := validation.Facts{Namespace: c.Namespace, ValidateRecommender: c.ValidateRecommender, DisabledKinds: c.DisabledKinds}
	if c.Cache == nil {
		return f
	}

	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()

	var actions ensurancev1alpha1.AvoidanceActionList
	if err := c.Cache.List(ctx, &actions); err == nil { // They are unknown otherwise.
		f.Actions = make(map[string]ensurancev1alpha1.AvoidanceActionSpec, len(actions.Items))
		for _, a := range actions.Items {
			f.Actions[a.Name] = a.Spec
		}
	}

	return f
}
