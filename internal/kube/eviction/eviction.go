// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package eviction knows what an API server says of an eviction where a pod's disruption budgets keep it, and where it has not said what
// became of it. Whoever evicts asks here: the one is about that pod, while an answer that looks like it (429, 500) may be about the API
// server, and about no pod at all.
package eviction

import (
	"errors"
	"net/http"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// multiplePDBs is in what an API server answers, with code 500 and no reason, of a pod with more than one budget: it evicts none of these, ever.
const multiplePDBs = "more than one PodDisruptionBudget"

// BlockedByPDB tells whether the answer to an eviction is that disruption budgets keep the pod, and what they say.
func BlockedByPDB(err error) (why string, kept bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "", false
	}
	s := status.Status()
	if strings.Contains(s.Message, multiplePDBs) {
		return s.Message, true
	}
	if s.Details == nil {
		return "", false
	}
	var texts []string
	for _, c := range s.Details.Causes {
		if c.Type == policyv1.DisruptionBudgetCause {
			texts, kept = append(texts, c.Message), true
		}
	}
	return strings.Join(texts, "; "), kept
}

// OutcomeUnknown tells that an API server has not said what became of an eviction, of which budgets do not keep the pod: the pod may be ending
// all the same.
func OutcomeUnknown(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError
}
