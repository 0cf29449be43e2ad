// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
)

// isPassing reports whether an error of the API server may go away by itself: it is overloaded, unreachable or fails, as opposed to a kind
// that is not installed, a missing right or an invalid request.
func isPassing(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		switch code := status.Status().Code; code {
		case http.StatusRequestTimeout, http.StatusConflict, http.StatusGone, http.StatusTooManyRequests:
			return true
		default:
			return code >= http.StatusInternalServerError
		}
	}

	var broken net.Error
	var group *discovery.ErrGroupDiscoveryFailed
	return errors.As(err, &broken) || errors.As(err, &group) || errors.Is(err, context.DeadlineExceeded)
}
