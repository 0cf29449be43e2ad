// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"math"
	"strconv"

	"crane.io/crane/pkg/units"
)

// HoursPerMonth is the length of a month: 365 days of 24 hours in 12 months, as cloud providers count.
const HoursPerMonth = 730

// Nanos is an amount of money per hour in billionths of the currency: 1 USD per hour is 1e9. An int64 holds 9.2e9 units per
// hour, more than any cluster costs, and the price of a thousandth of a core is still tens of thousands.
type Nanos int64

const nanosPerUnit = 1e9

// PerHour returns the amount in units of the currency.
func (n Nanos) PerHour() float64 { return float64(n) / nanosPerUnit }

// PerMonth returns the amount for a month of HoursPerMonth in units of the currency.
func (n Nanos) PerMonth() float64 { return n.PerHour() * HoursPerMonth }

// Prices per hour, in units of the currency.
type (
	// PerCoreHour is the price of one core for one hour.
	PerCoreHour float64
	// PerGiBHour is the price of 2^30 bytes of memory for one hour.
	PerGiBHour float64
	// PerGPUHour is the price of one GPU for one hour.
	PerGPUHour float64
	// PerNodeHour is the price of a whole node for one hour.
	PerNodeHour float64
)

// maxPrice bounds each price, in units of the currency per hour. It is far above the price of any machine and keeps sums in
// range.
const maxPrice = 1e6

// Rates are the prices of the parts of a node.
type Rates struct {
	CPU    PerCoreHour `json:"cpu"`
	Memory PerGiBHour  `json:"memory"`
	// GPU is 0 if no price is known.
	GPU PerGPUHour `json:"gpu"`
}

// Amounts holds an amount of each resource: the size of a node, or the request or usage of a pod. None is negative.
type Amounts struct {
	CPU    units.MilliCPU
	Memory units.Bytes
	// GPU counts whole devices.
	GPU int64
}

// Max returns the larger amount of each resource.
func (a Amounts) Max(b Amounts) Amounts {
	return Amounts{CPU: max(a.CPU, b.CPU), Memory: max(a.Memory, b.Memory), GPU: max(a.GPU, b.GPU)}
}

// Plus returns the sum by resource.
func (a Amounts) Plus(b Amounts) Amounts {
	return Amounts{CPU: a.CPU + b.CPU, Memory: a.Memory + b.Memory, GPU: a.GPU + b.GPU}
}

// clamped returns amounts that are not negative, and small enough for a sum of a hundred thousand of them.
func (a Amounts) clamped() Amounts {
	const maxAmount = 1 << 46 // 64 TiB of memory; more than any machine has.
	return Amounts{
		CPU: min(max(a.CPU, 0), maxAmount), Memory: min(max(a.Memory, 0), maxAmount), GPU: min(max(a.GPU, 0), maxAmount),
	}
}

const (
	milliPerCore = 1000
	bytesPerGiB  = 1 << 30
)

func cores(m units.MilliCPU) float64 { return float64(m) / milliPerCore }

func gib(b units.Bytes) float64 { return float64(b) / bytesPerGiB }

// nanos rounds an amount in units of the currency to billionths. v is finite and at most a few times maxPrice.
func nanos(v float64) Nanos { return Nanos(math.Round(v * nanosPerUnit)) }

// Split is an hourly amount by resource.
type Split struct {
	CPU    Nanos `json:"cpu"`
	Memory Nanos `json:"memory"`
	GPU    Nanos `json:"gpu,omitempty"`
}

// Total returns the sum over the resources.
func (s Split) Total() Nanos { return s.CPU + s.Memory + s.GPU }

// Plus adds resource by resource.
func (s Split) Plus(t Split) Split {
	return Split{CPU: s.CPU + t.CPU, Memory: s.Memory + t.Memory, GPU: s.GPU + t.GPU}
}

func formatFloat(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
