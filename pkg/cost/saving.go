// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"math"

	"crane.io/crane/pkg/series"
)

// Resize is a change of what one container requests; nil is no request, or no number.
type Resize struct {
	Container            string
	CPUNow, CPUNew       *series.MilliCPU
	MemoryNow, MemoryNew *series.Bytes
	// ZeroCounts marks what asks for nothing now and is known to, rather than having no request; then a resource without
	// both amounts has no part in it and is not said to be left out.
	ZeroCounts bool
}

// Saving is what a change of requests is worth, over all pods of a workload. Below zero it is a cost: the workload
// should request more than it does.
type Saving struct {
	CPU    series.MilliCPU
	Memory series.Bytes
	// Hourly is the money, at the prices of Price.
	Hourly Split
	Price  UnitPrice
	// Counted is the number of requests, of CPU or of memory, that are counted.
	Counted int
	// NotCounted says what is not counted and why, a sentence each.
	NotCounted []string
}

// SavingOf prices the change of a workload with so many pods. What has no request today is left out and said so: a
// request that is new takes nothing from anybody who pays for it now, and what the pods used so far was never asked for.
// So is what has no recommended number, and a workload without pods.
//
// Less requested is money only once nodes go: it is the price of the room that becomes free.
func SavingOf(price UnitPrice, pods int32, resizes []Resize) Saving {
	return SavingOfMean(price, float64(pods), resizes)
}

// SavingOfMean is SavingOf for pods that come and go: pods is how many there were on average.
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
	cpu, memory = cpu*pods, memory*pods
	money := math.Abs(cpu/milliPerCore*float64(price.CPU)) + math.Abs(memory/bytesPerGiB*float64(price.Memory))
	const most = 1 << 53 // Beyond this floats leave whole numbers out.
	if math.Abs(cpu) > most || math.Abs(memory) > most || !(money <= maxClusterPrice) {
		s.NotCounted, s.Counted = append(s.NotCounted, "the amounts are too large to be counted"), 0
		return s
	}
	s.CPU, s.Memory = series.MilliCPU(cpu), series.Bytes(memory)
	s.Hourly = Split{CPU: nanos(cores(s.CPU) * float64(price.CPU)), Memory: nanos(gib(s.Memory) * float64(price.Memory))}
	return s
}

// differenceOf is reductionOf where a zero is an amount like any other.
func differenceOf[T series.MilliCPU | series.Bytes](s *Saving, now, after *T) float64 {
	if now == nil || after == nil {
		return 0
	}
	s.Counted++
	return float64(*now) - float64(*after)
}

// reductionOf is how much less a pod requests than now.
func reductionOf[T series.MilliCPU | series.Bytes](s *Saving, what string, now, after *T) float64 {
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
