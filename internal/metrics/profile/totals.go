// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"math"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
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
		start: start, cells: max(0, int((end.Sub(start)+TotalStep-1)/TotalStep)),
		cpu: map[identity][]float32{}, memory: map[identity][]float32{},
	}
}

// add distributes a chunk over its cells by time, so that sums over pods with different steps are correct. A nil receiver ignores it.
func (t *totals) add(id identity, c metrics.Chunk, resource metrics.Resource) {
	if t == nil || c.Series.Step <= 0 {
		return
	}
	into := t.cpu
	switch resource {
	case metrics.CPU:
	case metrics.Memory:
		into = t.memory
	default:
		return
	}
	cells := into[id]
	if cells == nil {
		cells = make([]float32, t.cells)
		for i := range cells {
			cells[i] = float32(math.NaN())
		}
		into[id] = cells
	}
	for i, v := range c.Series.Values {
		if series.IsGap(v) || v < 0 || math.IsInf(v, 0) {
			continue
		}
		from := c.Series.Start.Add(time.Duration(i) * c.Series.Step).Sub(t.start)
		spread(cells, from, from+c.Series.Step, v)
	}
}

// spread adds a value over [from, to) to the means of the cells, weighted by the part of each cell that it covers.
func spread(cells []float32, from, to time.Duration, value float64) {
	for i := int(max(0, from) / TotalStep); i < len(cells) && time.Duration(i)*TotalStep < to; i++ {
		begin, end := time.Duration(i)*TotalStep, time.Duration(i+1)*TotalStep
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
