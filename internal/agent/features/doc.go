// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package features detects what the agent can do on a host: each feature is on, off or unsupported, with the reason. It changes nothing on
// the host.
package features
