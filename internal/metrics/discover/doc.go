// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package discover finds the Prometheus of a cluster when nobody says where it is: it knows by which names and labels the
// usual installations make their services known, lists those of a cluster in a written order, and leads to each through
// the API server's service proxy, so that a kubeconfig is all that is needed. It must not know what is asked of the
// server that it finds, nor decide which one is right: the caller probes them in order.
package discover
