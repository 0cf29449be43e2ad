// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// isTransient reports whether a retry of a request may succeed after this error: the API server is overloaded, unreachable or fails, the object
// was changed meanwhile, or a list expired. It is false for a kind that is not installed, a missing right and an invalid request.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return isTransientStatus(status)
	}

	var networkErr net.Error
	var discoveryErr *discovery.ErrGroupDiscoveryFailed
	return errors.As(err, &networkErr) || errors.As(err, &discoveryErr) || errors.Is(err, context.DeadlineExceeded)
}

func isTransientStatus(status apierrors.APIStatus) bool {
	switch code := status.Status().Code; code {
	case http.StatusConflict:
		// An existing object has the same code as a conflict of versions, but stays.
		return status.Status().Reason != metav1.StatusReasonAlreadyExists
	case http.StatusRequestTimeout, http.StatusGone, http.StatusTooManyRequests:
		return true
	default:
		return code >= http.StatusInternalServerError
	}
}
