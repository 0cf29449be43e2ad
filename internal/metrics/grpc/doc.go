// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package grpc reads usage from a server that implements the protocol in datasource.proto, with one request for each container or workload.
// It lists workloads through an inventory, as the protocol cannot list them.
package grpc
