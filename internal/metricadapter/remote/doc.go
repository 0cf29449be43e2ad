// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package remote passes requests on to another adapter of the metrics API, so that a cluster, which can have one adapter alone, keeps
// the metrics of the one that it had. The other adapter is verified, and called with the adapter's own token: whoever asks has been
// authorised for the same metric before.
package remote
