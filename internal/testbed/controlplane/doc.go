// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real Kubernetes control plane as child processes of a test or of the playground, on
// loopback and without root: an API server with an embedded etcd and, optionally, the controller manager and the
// scheduler. It issues their certificates, writes their kubeconfigs, waits until they serve, and stops and restarts
// them for fault scenarios.
//
// The components are in the binary cmd/controlplane, so that importing this package does not link k8s.io/kubernetes.
// The package is independent of nodes, workloads and Crane's own binaries.
package controlplane
