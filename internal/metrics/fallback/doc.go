// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fallback combines data sources into one that uses the first source able to answer a request.
//
// A source that fails is logged and counted, and is used only after all others for a cooldown. An error that the request itself causes, or
// that occurs after part of a result was consumed, is returned without trying another source.
package fallback
