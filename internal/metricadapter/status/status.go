// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status has the answers of the adapter that are not values. An HPA takes all of them alike, as a metric that is not there;
// the code and the sentence are for people.
package status

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BadRequest is a request that means nothing.
func BadRequest(format string, args ...any) error {
	return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, format, args...)
}

// NotFound is a request for what there is not.
func NotFound(format string, args ...any) error {
	return failure(http.StatusNotFound, metav1.StatusReasonNotFound, format, args...)
}

// Unprocessable is what only a person can put right.
func Unprocessable(format string, args ...any) error {
	return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, format, args...)
}

// Unavailable is what may be there later.
func Unavailable(format string, args ...any) error {
	return failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, format, args...)
}

func failure(code int32, reason metav1.StatusReason, format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: fmt.Sprintf(format, args...),
	}}
}
