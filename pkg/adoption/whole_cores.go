// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"slices"

	"crane.io/crane/pkg/units"
)

// oneCore is a whole core in millicores. A container of a Guaranteed pod that requests whole cores has them for itself on nodes with the static
// CPU policy, and would silently share them with a fraction.
const oneCore = 1000

// wholeCores returns the containers that request whole cores in Guaranteed pods.
func wholeCores(in Input) map[string]bool {
	out := map[string]bool{}
	for _, p := range in.Pods {
		if !p.Guaranteed() {
			continue
		}

		for _, c := range p.Containers {
			if cpu := c.Size.CPURequest; cpu != nil && *cpu%oneCore == 0 {
				out[c.Name] = true
			}
		}
	}

	return out
}

// withWholeCores returns the input with a desired size of whole cores where pods have them, and with the reasons.
func withWholeCores(in Input) Input {
	whole := wholeCores(in)
	desired := in.DesiredSize.Clone()
	for _, a := range in.DesiredSize.amounts() {
		v, _ := desired.get(a)
		if (a.field != cpuRequest && a.field != cpuLimit) || !whole[a.container] || v%oneCore == 0 {
			continue
		}

		rounded := roundUpToCore(v)
		desired.set(a, rounded)

		if a.field == cpuRequest {
			in.Bounds = append(slices.Clip(in.Bounds), fmt.Sprintf("container %s gets %s of CPU instead of %s: its pod is Guaranteed, and whole cores are exclusive on nodes with the static CPU policy",
				a.container, units.FormatCPU(units.MilliCPU(rounded)), units.FormatCPU(units.MilliCPU(v))))
		}
	}

	in.DesiredSize = desired
	return in
}

func roundUpToCore(v int64) int64 { return (v + oneCore - 1) / oneCore * oneCore }

// stepToWholeCores changes a step down to whole cores where pods have them: one core at least, though that may be more than the share of a step.
func stepToWholeCores(in Input, from Size, to *Size) {
	whole := wholeCores(in)
	for _, a := range to.amounts() {
		before, isSet := from.get(a)
		after, _ := to.get(a)
		if (a.field != cpuRequest && a.field != cpuLimit) || !whole[a.container] || !isSet || after >= before || before%oneCore != 0 {
			continue
		}

		to.set(a, min(roundUpToCore(after), before-oneCore))
	}
}
