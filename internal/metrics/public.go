// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import "errors"

// PublicError is an error whose text names what only administrators may know, such as the address of a server.
type PublicError interface {
	error
	// PublicMessage describes the failure without that.
	PublicMessage() string
}

// PublicMessage returns the text of an error for readers of one namespace: in the status of their objects and in answers to their requests.
// The log has the whole error.
func PublicMessage(err error) string {
	if public := PublicError(nil); errors.As(err, &public) {
		return public.PublicMessage()
	}
	return err.Error()
}
