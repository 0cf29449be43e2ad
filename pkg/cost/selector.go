// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import "slices"

// Operator compares a label with the values of a requirement.
type Operator string

// The operators of a Kubernetes label selector.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
)

// Requirement is one condition on a label.
type Requirement struct {
	Key      string
	Operator Operator
	// Values are those of In and NotIn; the others have none.
	Values []string
}

// Selector is a label selector with the meaning that Kubernetes gives it: every requirement must hold. One without
// requirements selects everything; a price book refuses it, because it has a default for that.
type Selector []Requirement

// Matches tells whether the labels fulfil every requirement. A label that is missing fulfils NotIn and DoesNotExist.
func (s Selector) Matches(labels map[string]string) bool {
	for _, r := range s {
		value, there := labels[r.Key]
		var ok bool
		switch r.Operator {
		case In:
			ok = there && slices.Contains(r.Values, value)
		case NotIn:
			ok = !there || !slices.Contains(r.Values, value)
		case Exists:
			ok = there
		case DoesNotExist:
			ok = !there
		}
		if !ok {
			return false
		}
	}
	return true
}
