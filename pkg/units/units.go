// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package units names the amounts that Crane computes with: CPU, memory and shares, and how durations and counts are
// written for people.
package units

// MilliCPU is an amount of CPU in thousandths of a core.
type MilliCPU int64

// Bytes is an amount of memory or storage in bytes.
type Bytes int64

// Ratio is a dimensionless share; 1 means all of it.
type Ratio float64

// Resource is the name of a resource, as Kubernetes writes it.
type Resource string

// The resources that every container has.
const (
	// CPU is measured in cores, or in MilliCPU.
	CPU Resource = "cpu"
	// Memory is measured in bytes.
	Memory Resource = "memory"
)
