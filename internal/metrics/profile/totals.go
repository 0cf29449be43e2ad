// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"math"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/histogram"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// TotalStep is the time between two values of Usage.Totals.
const TotalStep = 5 * time.Minute

// totals is the usage of workloads over all their pods, on one grid.
type totals struct {
	start time.Time
	cells int
	// cpu and memory hold a mean for each cell, NaN where nothing was measured. Single precision has seven digits, which suffice.
	cpu, memory map[identity][]float32
}

func newTotals(start, end time.Time) *totals {
	return &totals{
		start:  start,
		cells:  max(0, int((end.Sub(start)+TotalStep-1)/TotalStep)),
		cpu:    map[identity][]float32{},
		memory: map[identity][]float32{},
	}
}

// add distributes a chunk over its cells by time, so that sums over pods with different steps are correct. A nil receiver ignores it.
func (t *totals) add(id identity, capacities *metrics.Capacities, c metrics.Chunk, resource metrics.UsageKind) {
	if t == nil || c.Series.Step <= 0 {
		return
	}

	resourceTotals := t.cpu
	switch resource {
	case metrics.CPU:
	case metrics.Memory:
		resourceTotals = t.memory
	default:
		return
	}

	// Cells start as gaps: without samples, usage is unknown and not 0.
	cells := resourceTotals[id]
	if cells == nil {
		cells = make([]float32, t.cells)
		for i := range cells {
			cells[i] = float32(math.NaN())
		}
		resourceTotals[id] = cells
	}

	for i, v := range plausible(capacities, c, resource).Values {
		if series.IsGap(v) || v < 0 || math.IsInf(v, 0) {
			continue
		}

		from := c.Series.Start.Add(time.Duration(i) * c.Series.Step).Sub(t.start)
		spread(cells, from, from+c.Series.Step, v)
	}
}

// plausible returns the usage of a chunk without samples that cannot be measurements.
func plausible(capacities *metrics.Capacities, c metrics.Chunk, resource metrics.UsageKind) series.Series {
	unit := rightsize.BytesUnit
	if resource == metrics.CPU {
		unit = rightsize.Cores
	}

	out, _ := rightsize.Plausible(c.Series, unit, capacities.Bound(c, resource))
	return out
}

// spread adds a value over [from, to) to the means of the cells, weighted by the part of each cell that it covers.
func spread(cells []float32, from, to time.Duration, value float64) {
	for i := int(max(0, from) / TotalStep); i < len(cells) && time.Duration(i)*TotalStep < to; i++ {
		begin := time.Duration(i) * TotalStep
		end := time.Duration(i+1) * TotalStep
		share := float64(min(end, to)-max(begin, from)) / float64(TotalStep)
		if share <= 0 {
			continue
		}

		if cells[i] != cells[i] { // NaN
			cells[i] = 0
		}
		cells[i] += float32(value * share)
	}
}

// Totals returns the CPU usage (cores) and memory usage (bytes, working set) summed over all pods of a workload, as means over TotalStep, with
// gaps where nothing was measured. Both are empty without usage, or where the request had no Totals.
func (u *Usage) Totals(ref workload.Ref) (cpu, memory series.Series) {
	if u.totals == nil {
		return series.Series{}, series.Series{}
	}

	id := identityOf(ref)
	return u.totals.of(u.totals.cpu[id]), u.totals.of(u.totals.memory[id])
}

func (t *totals) of(cells []float32) series.Series {
	if cells == nil {
		return series.Series{}
	}

	out := series.Series{Start: t.start, Step: TotalStep, Values: make([]float64, len(cells))}
	for i, v := range cells {
		out.Values[i] = float64(v)
	}

	return out
}

// CPUQuantile returns a quantile (0 to 1) of the CPU usage of a container of one pod over the days of a window, in cores; NaN without usage.
func (u *Usage) CPUQuantile(ref workload.Ref, name string, now time.Time, window time.Duration, q float64) float64 {
	var all histogram.Counts
	for _, d := range u.Profile(ref, name).Window(now, window) {
		all.Merge(&d.CPU)
	}

	if all.Total() == 0 {
		return math.NaN()
	}

	return all.Quantile(q)
}

// heapSizes are the largest sizes of the Java heaps of a container's pods.
type heapSizes struct{ max, live units.Bytes }

// addHeap adds the heap of a pod's container, if it belongs to a requested workload.
func (u *Usage) addHeap(h metrics.Heap) {
	if key := (container{identity: identityOf(h.Key.Workload), name: h.Key.Container}); u.includes(key) {
		earlier := u.heaps[key]
		u.heaps[key] = heapSizes{max: max(earlier.max, h.Max), live: max(earlier.live, h.Live)}
	}
}

// sameHeap is the relative difference up to which a reported heap is the share of the limit that a flag sets: the JVM rounds it.
const sameHeap = 0.05

// jvm combines the flags and metrics of a Java heap. A reported maximum without a flag that explains it may be a share of the memory limit, as
// the JVM chooses by default, or a fixed size whose flag is not visible, in the image or in a ConfigMap; then both are returned.
func (u *Usage) jvm(ref workload.Ref, c workload.Container) *rightsize.JVM {
	sizes, ok := u.heaps[container{identity: identityOf(ref), name: c.Name}]
	if !ok {
		return c.JVM
	}

	var out rightsize.JVM
	if c.JVM != nil {
		out = *c.JVM
	}

	out.PeakHeap = sizes.live
	limit := float64(c.Limits.Memory)
	expected := float64(out.MaxRAMPercentage) * limit
	switch {
	case sizes.max == 0:
	case out.MaxRAMPercentage > 0 && math.Abs(float64(sizes.max)-expected) <= sameHeap*expected:
	case out.MaxHeap > 0 || out.MaxRAMPercentage > 0:
		out.MaxHeap = max(out.MaxHeap, sizes.max)
	default:
		out.MaxHeap = sizes.max
		if float64(sizes.max) <= limit {
			out.MaxRAMPercentage = units.Ratio(float64(sizes.max) / limit)
		}
	}

	if out == (rightsize.JVM{}) {
		return nil
	}

	return &out
}
