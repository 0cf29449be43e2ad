// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status builds the error responses of the adapter. An HPA treats all of them as a missing metric; code and message are for
// people.
package status

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BadRequest returns the error for an invalid request.
func BadRequest(format string, args ...any) error {
	return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, format, args...)
}

// NotFound returns the error for a metric or object that does not exist.
func NotFound(format string, args ...any) error {
	return failure(http.StatusNotFound, metav1.StatusReasonNotFound, format, args...)
}

// Unprocessable returns the error for a state that a retry does not change.
func Unprocessable(format string, args ...any) error {
	return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, format, args...)
}

// Unavailable returns the error for a state that a retry may change.
func Unavailable(format string, args ...any) error {
	return failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, format, args...)
}

func failure(code int32, reason metav1.StatusReason, format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    code,
		Reason:  reason,
		Message: fmt.Sprintf(format, args...),
	}}
}
