// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adoption decides how a recommended size is applied to a running workload: increases at once, reductions in steps that are
// watched and rolled back if something gets worse, and no change where the owner decides otherwise.
//
// Decide is a pure function of the observed workload and of the stored State. The caller stores the new state first and then carries
// out the plan, so that another replica can continue at any point. The package knows neither how pods are observed or changed nor how
// a size was recommended. Whether a pod is resized in place is decided in resize_in_place.go, whether it is evicted in evict_pods.go.
package adoption
