// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package datasourcepb holds the protobuf types of the gRPC data source, generated from datasource.proto.
package datasourcepb
