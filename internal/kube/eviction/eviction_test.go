// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestBlockedByPDB checks that answers about budgets are distinguished from errors of the API server with the same codes.
func TestBlockedByPDB(t *testing.T) {
	one := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
	one.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 2 healthy pods and has 2 currently"}}
	two := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 500, Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
	}}
	for name, test := range map[string]struct {
		err error
		why string // empty if not blocked
	}{
		"yes":               {nil, ""},
		"a budget":          {one, "needs 2 healthy pods"},
		"a budget, wrapped": {fmt.Errorf("pod x: %w", one), "needs 2 healthy pods"},
		"two budgets":       {two, "more than one"},
		"busy":              {apierrors.NewTooManyRequests("too many requests", 1), ""},
		"internal error":    {apierrors.NewInternalError(errors.New("etcd")), ""},
		"no answer":         {errors.New("connection refused"), ""},
	} {
		why, kept := BlockedByPDB(test.err)
		if kept != (test.why != "") || !strings.Contains(why, test.why) {
			t.Errorf("%s: BlockedByPDB = %q, %t, want a message with %q", name, why, kept, test.why)
		}
	}
}
