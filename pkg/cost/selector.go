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
	Key      string   `json:"key"`
	Operator Operator `json:"operator"`
	// Values belong to In and NotIn; the other operators have none.
	Values []string `json:"values"`
}

// Selector is a Kubernetes label selector: every label and every requirement must match. An empty selector matches
// everything.
type Selector struct {
	MatchLabels      map[string]string `json:"matchLabels"`
	MatchExpressions []Requirement     `json:"matchExpressions"`
}

func (s Selector) empty() bool { return len(s.MatchLabels)+len(s.MatchExpressions) == 0 }

// Matches reports whether the labels fulfil the selector. A missing label fulfils NotIn and DoesNotExist.
func (s Selector) Matches(labels map[string]string) bool {
	for key, want := range s.MatchLabels {
		if value, exists := labels[key]; !exists || value != want {
			return false
		}
	}
	for _, r := range s.MatchExpressions {
		value, exists := labels[r.Key]
		var ok bool
		switch r.Operator {
		case In:
			ok = exists && slices.Contains(r.Values, value)
		case NotIn:
			ok = !exists || !slices.Contains(r.Values, value)
		case Exists:
			ok = exists
		case DoesNotExist:
			ok = !exists
		}
		if !ok {
			return false
		}
	}
	return true
}
