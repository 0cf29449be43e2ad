// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation says, for each kind of Crane, what the API server accepts beyond the schema of its CRD, what it warns of, and
// which defaults it fills in. An error is what no controller could carry out; a warning is what is carried out differently from
// what it looks like, or not yet.
//
// All of it is pure: an object and the facts about the rest of the cluster go in, a verdict comes out. It must not know how
// requests arrive, nor ask anybody.
package validation
