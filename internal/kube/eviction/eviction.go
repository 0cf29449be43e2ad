// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package eviction interprets the API server's answer to an eviction. It distinguishes an eviction that a PodDisruptionBudget
// blocks from an error of the API server with the same status code (429, 500), and from an unknown outcome.
package eviction

import (
	"errors"
	"net/http"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// multiplePDBs is part of the API server's answer, with code 500 and no reason, for a pod with more than one budget, which it
// never evicts.
const multiplePDBs = "more than one PodDisruptionBudget"

// BlockedByPDB reports whether disruption budgets block an eviction, with the message of the API server.
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

// OutcomeUnknown reports whether it is unknown if a pod was evicted: the API server's answer is neither success nor a refusal, so
// the pod may be terminating.
func OutcomeUnknown(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError
}
