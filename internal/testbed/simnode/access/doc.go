// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package access guards the HTTPS endpoints of the simulated nodes: who calls (client certificate, front proxy, bearer
// token) and whether the cluster's RBAC lets them. It asks the API server with TokenReview and SubjectAccessReview and
// remembers the answers for a short time. It must not know what it guards.
package access
