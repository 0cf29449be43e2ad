// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real Kubernetes control plane on this machine, on loopback alone and without root: an API
// server with its own etcd, and where asked the controller manager and the scheduler, each a child process. It makes their
// certificates, writes their kubeconfigs, waits until they serve, and stops and starts them for fault scenarios. The
// playground and the integration tests share it.
//
// It is light: the components themselves live in the binary cmd/controlplane, so that what imports this package does not
// link k8s.io/kubernetes. It must not know of nodes, of workloads, or of Crane's own binaries.
package controlplane
