// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Annotations of a Node with its load. The key of a metric is its name in the policy, without a prefix; the value is the number, a
// comma, and the time at which it was read in the form 2006-01-02T15:04:05Z, where the Z is a letter and no zone. Crane writes UTC.
const (
	// AnnotationNodeHotValue holds the hot value, a whole number.
	AnnotationNodeHotValue = "node_hot_value"
)
