// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signals combines the measurements of package observe with the pods of package inventory to the observation that rules evaluate:
// gocrane's and Crane's metrics by name, and pods with their use.
package signals
