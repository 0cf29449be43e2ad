// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package messy draws namespaces as users have them: limits, quotas, policies and foreign webhooks beside workloads of all kinds, with
// recommendations and events that disturb their adoption. A case is plain data that a seed determines, that prints itself and that Shrink
// makes smaller; Objects returns its Kubernetes objects.
package messy
