// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package grpc reads what containers used from a server that speaks the protocol in datasource.proto: one question for each
// container or workload. It knows which workloads there are from an inventory, since the protocol cannot list them.
//
// The ten messages are coded by hand, on the wire functions of Google's library: they have been the same for years, and no
// build needs a compiler of .proto files for them. A test decodes with the library what is encoded here, and the other
// way round.
package grpc
