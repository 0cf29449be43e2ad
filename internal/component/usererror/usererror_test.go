// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package usererror

import (
	"errors"
	"fmt"
	"testing"
)

func TestKindOf(t *testing.T) {
	cause := errors.New("--output xml")
	for _, test := range []struct {
		name string
		err  error
		want Kind
	}{
		{"nil", nil, Other},
		{"unmarked", cause, Other},
		{"invalid", Invalid(cause), InvalidInput},
		{"not found", NotFound(cause), NoResult},
		{"wrapped", fmt.Errorf("adopting: %w", NotFound(cause)), NoResult},
		{"the outermost mark", Invalid(fmt.Errorf("adopting: %w", NotFound(cause))), InvalidInput},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := KindOf(test.err); got != test.want {
				t.Errorf("KindOf(%v) = %d, want %d", test.err, got, test.want)
			}
		})
	}
}

func TestInvalid_KeepsTheErrorOrNil(t *testing.T) {
	cause := errors.New("--output xml")
	if err := Invalid(cause); !errors.Is(err, cause) || err.Error() != cause.Error() {
		t.Errorf("Invalid(%v) = %v, want the same text and cause", cause, err)
	}
	if err := Invalid(nil); err != nil {
		t.Errorf("Invalid(nil) = %v, want nil", err)
	}
}
