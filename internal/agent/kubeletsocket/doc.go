// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeletsocket reads from the kubelet's socket of pod resources which CPUs it assigned to containers. The socket has no credentials. The
// state files with the same content are in a directory that has some, and a mount of the single files would not follow the kubelet, which
// replaces them.
package kubeletsocket
