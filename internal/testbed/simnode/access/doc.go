// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package access authenticates requests to the HTTPS endpoints of the simulated nodes (client certificate, front proxy,
// bearer token) and authorizes them by the cluster's RBAC. It uses TokenReview and SubjectAccessReview and caches the
// results for a short time.
package access
