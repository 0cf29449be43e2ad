// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package elasticresource offers what is unused of the node as gocrane.io/cpu and gocrane.io/memory. Manager reads what the node uses, what its pods
// hold and what is expected, lets pkg/elastic decide, and writes the two resources, and nothing else of the Node's status, with each term
// of the formula in an annotation. What pods on elastic resources get of the kernel is podresource's, what a rule does to them pkg/qos's.
package elasticresource
