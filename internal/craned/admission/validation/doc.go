// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation defines, for each kind of Crane, which objects are accepted beyond the schema of the CRD, the warnings, and
// the defaults. An error is about a field that no controller could carry out; a warning is about a field that has an unexpected
// effect or none.
//
// All functions are pure: they take an object and facts about the rest of the cluster and return a result. The package is
// independent of the transport and reads nothing from a cluster.
package validation
