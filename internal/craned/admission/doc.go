// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission serves Crane's admission webhooks. It turns requests of the API server into calls of package validation and
// of the mutators of pods, and has no rules of its own. It caches only the objects that validation needs.
package admission
