// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package features says what an agent can do on a host: each feature is on, off or unsupported, with the reason. It looks, and changes
// nothing.
package features
