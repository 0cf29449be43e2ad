// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cranemetrics

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func notFound(message string) error {
	return failure(http.StatusNotFound, metav1.StatusReasonNotFound, message)
}

// unprocessable is what only a person can put right.
func unprocessable(message string) error {
	return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, message)
}

func failure(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}
