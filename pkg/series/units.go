// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package series

// MilliCPU is an amount of CPU in thousandths of a core.
type MilliCPU int64

// Bytes is an amount of memory or storage in bytes.
type Bytes int64

// Ratio is a dimensionless share; 1 means all of it.
type Ratio float64
