// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Annotations of a Node that carry its load. The key of a metric is its name in the policy, without a prefix; the value
// is the number, a comma, and the time at which it was read.
const (
	// AnnotationNodeHotValue holds the hot value, a whole number.
	AnnotationNodeHotValue = "node_hot_value"
	// AnnotationTimeLayout is the layout, in the sense of package time, of the time in the value. The Z is a letter and no
	// zone. Crane writes UTC; gocrane local time of the zone in the environment variable TZ of the writer, or of
	// DefaultTimeZone.
	AnnotationTimeLayout = "2006-01-02T15:04:05Z"
	// DefaultTimeZone is the zone of the time where TZ is not set, as with gocrane.
	DefaultTimeZone = "Asia/Shanghai"
)
