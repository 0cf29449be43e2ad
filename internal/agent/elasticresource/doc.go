// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package elasticresource advertises unused capacity of the node as gocrane.io/cpu and gocrane.io/memory. Manager collects use,
// allocation and forecast, passes them to pkg/elastic, and writes only these two resources of the Node's status, with every term of the
// formula in an annotation. Limits of pods on elastic resources are set by internal/agent/podresource; rules for them are in pkg/qos.
package elasticresource
