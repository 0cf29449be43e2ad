// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

// What is older than two weeks is kept by the hour, for three weeks more: enough to know a weekday from five of its
// kind. A block stands for the units of an hour: each sub-slot is the median of its part of the hour, high and top are
// quantiles of all atoms.

// olderDays is how much history is kept beyond historyDays.
const olderDays = 21

// blocks returns how many blocks the older history has.
func (l layout) blocks() int { return olderDays * l.perDay() / l.perBlock() }

// retire keeps the block that begins with the unit that is about to be pushed out, or holds it where the recent history
// does not begin with a block.
func (m *Model) retire() {
	if !m.recent.full() {
		return
	}
	per := int64(m.layout.perBlock())
	leaving := m.recent.end - int64(m.recent.count)
	block := floorDiv(leaving, per)
	if m.older.count > 0 && block < m.older.end {
		return
	}
	if m.older.count == 0 {
		m.older.restart(block)
	}
	units := make([]unit, 0, 4)
	for i := block * per; i < (block+1)*per; i++ {
		units = append(units, m.recent.at(i).unpack())
	}
	m.older.push(merge(m.layout.sub, sharesFor(m.layout, m.step), units).pack(), m.layout.blocks())
}

// merge makes one unit of some that follow each other.
func merge(sub int, shares shares, units []unit) unit {
	out := emptyUnit()
	few := make(sortedAtoms, 0, 4*unitAtoms)
	weights := [levelAtoms]float32(shares)
	weights[0] /= float32(sub)
	var mids [maxSub][]float32
	var total float32
	for j := range units {
		u := &units[j]
		if u.empty() {
			continue
		}
		for i := range sub {
			if v := u.mid[i]; !isNaN(v) {
				part := (j*sub + i) / len(units)
				mids[part] = append(mids[part], v)
				few = append(few, pack(v, 0, 0))
				total += weights[0]
			}
		}
		few = append(few, pack(u.high, 0, 1), pack(u.top, 0, 2))
		total += weights[1] + weights[2]
	}
	if len(few) == 0 {
		return out
	}
	for i, part := range mids {
		if len(part) > 0 {
			insertionSort(part)
			out.mid[i] = quantileSorted(part, 0.5)
		}
	}
	var upper [2]float32
	few.sort(nil).upper(weights[:], total, []float32{1 - highLevel, 1 - topLevel}, upper[:])
	out.high, out.top = upper[0], upper[1]
	return out
}

// long reports whether there is history beyond the recent one.
func (m *Model) long() bool { return m.older.count > 0 }

// oldUnit returns the unit of an index as the older history knows it.
func (m *Model) oldUnit(index int64) unit {
	per := int64(m.layout.perBlock())
	block := m.older.at(floorDiv(index, per))
	if block.empty() || per == 1 {
		return block.unpack()
	}
	whole := block.unpack()
	u, sub := whole, m.layout.sub
	at := int(floorMod(index, per))
	for i := range sub {
		u.mid[i] = whole.mid[(at*sub+i)/int(per)]
	}
	return u
}
