// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usererror marks errors that the user of a command can correct, so that the command ends with another exit
// code than after a failure.
package usererror

import "errors"

// Kind is what the user has to correct.
type Kind int

const (
	// Other is an error that is not marked.
	Other Kind = iota
	// InvalidInput is a flag or an argument that cannot be used.
	InvalidInput
	// NoResult is a valid request for something that does not exist.
	NoResult
)

// marked is an error with a kind.
type marked struct {
	kind Kind
	err  error
}

func (m *marked) Error() string { return m.err.Error() }

func (m *marked) Unwrap() error { return m.err }

// Invalid marks an error as caused by invalid input; nil stays nil.
func Invalid(err error) error { return mark(InvalidInput, err) }

// NotFound marks an error as a request for something that does not exist; nil stays nil.
func NotFound(err error) error { return mark(NoResult, err) }

func mark(kind Kind, err error) error {
	if err == nil {
		return nil
	}

	return &marked{kind: kind, err: err}
}

// KindOf returns the kind of the outermost marked error in the chain, or Other.
func KindOf(err error) Kind {
	var found *marked
	if errors.As(err, &found) {
		return found.kind
	}

	return Other
}
