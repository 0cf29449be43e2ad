// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package remote forwards requests to another adapter of the metrics API. A cluster can register one adapter only, so this keeps the
// metrics of the previous one available. The certificate of the other adapter is verified, and it is called with the adapter's own
// token after the API server has authorized the user for the same metric.
package remote
