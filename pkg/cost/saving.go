// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"math"

	"crane.io/crane/pkg/units"
)

// Resize is a change of the requests of one container; nil means no request or no recommendation.
type Resize struct {
	Container            string
	CPUNow, CPUNew       *units.MilliCPU
	MemoryNow, MemoryNew *units.Bytes
	// ZeroCounts marks requests of which zero is a known amount rather than a missing request; resources without both
	// amounts are then skipped without being reported in NotCounted.
	ZeroCounts bool
}

// Saving is the value of a change of requests over all pods of a workload. It is negative if the workload should request
// more.
type Saving struct {
	CPU    units.MilliCPU
	Memory units.Bytes
	// Hourly is the saved cost at the prices of Price.
	Hourly Split
	Price  UnitPrice
	// Counted is the number of counted requests of CPU and memory.
	Counted int
	// NotCounted lists what is not counted and why, one sentence each.
	NotCounted []string
}

// SavingOf prices the change of a workload with a number of pods. Resources without a current request are not counted, since
// a new request releases nothing that is paid for now; neither are resources without a recommended number, nor workloads
// without pods.
//
// Lower requests save money only once nodes are removed: a saving is the price of the capacity that becomes free.
func SavingOf(price UnitPrice, pods int32, resizes []Resize) Saving {
	return SavingOfMean(price, float64(pods), resizes)
}

// SavingOfMean is SavingOf for a varying number of pods, of which pods is the mean.
func SavingOfMean(price UnitPrice, pods float64, resizes []Resize) Saving {
	s := Saving{Price: price}
	if !(pods > 0) {
		s.NotCounted = append(s.NotCounted, "it has no pods now")
		return s
	}

	var cpu, memory float64
	for _, r := range resizes {
		if r.ZeroCounts {
			cpu += differenceOf(&s, r.CPUNow, r.CPUNew)
			memory += differenceOf(&s, r.MemoryNow, r.MemoryNew)
			continue
		}

		cpu += reductionOf(&s, "cpu of "+r.Container, r.CPUNow, r.CPUNew)
		memory += reductionOf(&s, "memory of "+r.Container, r.MemoryNow, r.MemoryNew)
	}

	cpu *= pods
	memory *= pods
	money := math.Abs(cpu/milliPerCore*float64(price.CPU)) + math.Abs(memory/bytesPerGiB*float64(price.Memory))

	const maxExact = 1 << 53 // Beyond this a float64 cannot hold every whole number.
	if math.Abs(cpu) > maxExact || math.Abs(memory) > maxExact || !(money <= maxClusterPrice) {
		s.NotCounted = append(s.NotCounted, "the amounts are too large to be counted")
		s.Counted = 0
		return s
	}

	s.CPU = units.MilliCPU(cpu)
	s.Memory = units.Bytes(memory)
	s.Hourly = Split{CPU: nanos(cores(s.CPU) * float64(price.CPU)), Memory: nanos(gib(s.Memory) * float64(price.Memory))}

	return s
}

// differenceOf is reductionOf with zero as an amount.
func differenceOf[T units.MilliCPU | units.Bytes](s *Saving, now, after *T) float64 {
	if now == nil || after == nil {
		return 0
	}

	s.Counted++
	return float64(*now) - float64(*after)
}

// reductionOf returns the reduction of the request of one pod.
func reductionOf[T units.MilliCPU | units.Bytes](s *Saving, what string, now, after *T) float64 {
	switch {
	case after == nil:
		s.NotCounted = append(s.NotCounted, what+": no number yet")
	case now == nil || *now <= 0:
		s.NotCounted = append(s.NotCounted, what+": no request today")
	case *after < 0:
		s.NotCounted = append(s.NotCounted, what+": a request below zero")
	default:
		s.Counted++
		return float64(*now) - float64(*after)
	}

	return 0
}
