// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import "math"

// bank holds the history as sorted atoms, one list for each place in the season at some resolution. Weighted quantiles
// of a list are what the seasonal methods forecast; a tag is row*atoms + atom.
type bank struct {
	lists  []sortedAtoms
	atoms  int       // atoms of a row in a list
	whole  bool      // no atom of any row is missing
	share  []float32 // what each atom weighs in the distribution of samples
	middle []float32 // what each atom weighs in the median: atoms of the upper tail weigh nothing
}

// total returns the weight of the atoms of any list, where the bank is whole.
func (b *bank) total(weights []float32) float32 {
	if !b.whole || len(b.lists) == 0 {
		return 0
	}
	return b.lists[0].total(weights)
}

// sortUnits sorts the atoms of all units once: lists are slots, tags are row*atoms + atom.
func sortUnits(g *grid) (sorted, scratch sortedAtoms) {
	atoms := g.sub + 2
	size := g.slots * len(g.rows) * atoms
	store := make(sortedAtoms, 0, size)
	scratch = make(sortedAtoms, size)
	for k := range g.rows {
		for s := range g.rows[k].units {
			u := &g.rows[k].units[s]
			if u.empty() {
				continue
			}
			tag := k * atoms
			for i := range g.sub {
				if v := u.mid[i]; !isNaN(v) {
					store = append(store, pack(v, s, tag+i))
				}
			}
			store = append(store, pack(u.high, s, tag+g.sub), pack(u.top, s, tag+g.sub+1))
		}
	}
	sorted = store.sort(scratch)
	if &sorted[:1][0] == &scratch[:1][0] {
		scratch = store[:size]
	}
	return sorted, scratch
}

// unitBank has a list for each unit of the season: all atoms of that unit.
func unitBank(g *grid, sorted sortedAtoms) *bank {
	atoms := g.sub + 2
	b := &bank{
		lists: sorted.split(g.slots), atoms: atoms, whole: len(sorted) == g.slots*len(g.rows)*atoms,
		share: make([]float32, atoms), middle: make([]float32, atoms),
	}
	for i := range g.sub {
		b.share[i] = g.shares[0] / float32(g.sub)
		b.middle[i] = 1
	}
	b.share[g.sub], b.share[g.sub+1] = g.shares[1], g.shares[2]
	return b
}

// fineBank has a list for each sub-slot: the medians of that sub-slot.
func fineBank(g *grid, sorted, scratch sortedAtoms) *bank {
	atoms := g.sub + 2
	own := scratch[:0]
	for _, x := range sorted {
		tag := tagOf(x)
		if row, i := tag/atoms, tag%atoms; i < g.sub {
			own = append(own, x&^(1<<valueShift-1)|uint64(listOf(x)*g.sub+i)<<listShift|uint64(row))
		}
	}
	return newFineBank(g, own)
}

func newFineBank(g *grid, sorted sortedAtoms) *bank {
	n := g.slots * g.sub
	return &bank{
		lists: sorted.split(n), atoms: 1, whole: len(sorted) == n*len(g.rows), share: []float32{1}, middle: []float32{1},
	}
}

// scaledBank is a fineBank of values that are divided by the level of their row, so that rows of different levels
// compare. Rows without a level are left out.
func scaledBank(g *grid, scratch sortedAtoms) *bank {
	store := make(sortedAtoms, 0, g.slots*g.sub*len(g.rows))
	for k, r := range g.rows {
		if !r.full() || !(r.level > 0) {
			continue
		}
		scale := float32(1 / r.level)
		for s := range r.units {
			for i := range g.sub {
				if v := r.units[s].mid[i]; !isNaN(v) {
					store = append(store, pack(v*scale, s*g.sub+i, k))
				}
			}
		}
	}
	return newFineBank(g, store.sort(scratch))
}

// The atoms of a block of units: the middles of the lower half, the next 30 %, the next 15 % and the top 5 %.
const blockAtoms = 4

func blockShares() []float32 { return []float32{0.5, 0.3, 0.15, 0.05} }
func blockLevels() [blockAtoms]float32 {
	return [blockAtoms]float32{0.25, 0.65, 0.875, 0.975}
}

// summariseBlocks returns the atoms of each block of each row.
func summariseBlocks(g *grid, perBlock int) [][blockAtoms]float32 {
	blocks := (g.slots + perBlock - 1) / perBlock
	summary := make([][blockAtoms]float32, blocks*len(g.rows))
	few := make(sortedAtoms, 0, perBlock*unitAtoms)
	for k := range g.rows {
		for i := range blocks {
			summary[k*blocks+i] = blockOf(g, g.rows[k].units[i*perBlock:min(g.slots, (i+1)*perBlock)], few)
		}
	}
	return summary
}

// blockBank has a list for each block of about an hour: the atoms of that block and of its two neighbours.
func blockBank(g *grid, perBlock int, summary [][blockAtoms]float32, scratch sortedAtoms) *bank {
	blocks := (g.slots + perBlock - 1) / perBlock
	store := make(sortedAtoms, 0, 3*len(summary)*blockAtoms)
	for i := range blocks {
		for k := range g.rows {
			for d := -1; d <= 1; d++ {
				// Time runs through rows: the block before the first one is the last one of the next older row.
				row, at := k, i+d
				if at < 0 {
					row, at = k+1, blocks-1
				} else if at >= blocks {
					row, at = k-1, 0
				}
				if row < 0 || row >= len(g.rows) || isNaN(summary[row*blocks+at][0]) {
					continue
				}
				// The tag is of the row that holds the atom, so that a replayed origin sees nothing later than itself.
				for a, v := range summary[row*blocks+at] {
					store = append(store, pack(v, i, row*blockAtoms+a))
				}
			}
		}
	}
	return &bank{
		lists: store.sort(scratch).split(blocks), atoms: blockAtoms, whole: false, share: blockShares(),
		middle: blockShares(),
	}
}

func blockOf(g *grid, units []unit, few sortedAtoms) [blockAtoms]float32 {
	var weights [unitAtoms]float32
	for i := range g.sub {
		weights[i] = g.shares[0] / float32(g.sub)
	}
	weights[maxSub], weights[maxSub+1] = g.shares[1], g.shares[2]
	var total float32
	for j := range units {
		for a := range unitAtoms {
			if v := units[j].atom(a); !isNaN(v) && weights[a] > 0 {
				few = append(few, pack(v, 0, a))
				total += weights[a]
			}
		}
	}
	out := [blockAtoms]float32{nan(), nan(), nan(), nan()}
	if len(few) == 0 {
		return out
	}
	few = few.sort(nil)
	levels := blockLevels()
	var sum float32
	next := 0
	for _, x := range few {
		sum += weights[tagOf(x)]
		for next < blockAtoms && sum >= levels[next]*total {
			out[next] = float32(unpack(x))
			next++
		}
	}
	for ; next < blockAtoms; next++ {
		out[next] = float32(unpack(few[len(few)-1]))
	}
	return out
}

// levelBank has one list: three atoms of every unit, by age in blocks: the median of one
// sub-slot, the high, the top. It forgets the time of day.
type levelBank struct {
	list    sortedAtoms
	middles sortedAtoms // the medians of list alone
	counts  []float32   // atoms by tag
	blocks  int
}

const levelAtoms = 3

func newLevelBank(g *grid, perBlock int, sorted sortedAtoms) *levelBank {
	total := len(g.rows) * g.slots
	b := &levelBank{blocks: (total + perBlock - 1) / perBlock}
	b.counts = make([]float32, b.blocks*levelAtoms)
	b.list = make(sortedAtoms, 0, total*levelAtoms)
	b.middles = make(sortedAtoms, 0, total)
	atoms := g.sub + 2
	for _, x := range sorted {
		tag := tagOf(x)
		row, atom := tag/atoms, tag%atoms
		kind := atom - g.sub + 1
		if atom < g.sub {
			if atom != g.turn(row, listOf(x)) {
				continue
			}
			kind = 0
		}
		own := ((row+1)*g.slots-1-listOf(x))/perBlock*levelAtoms + kind
		b.list = append(b.list, x&^fieldMask|uint64(own))
		b.counts[own]++
		if kind == 0 {
			b.middles = append(b.middles, b.list[len(b.list)-1])
		}
	}
	return b
}

// weigh fills dst with what each tag weighs for a target row, halving every halfLife blocks, and returns the weight of
// all atoms.
func (b *levelBank) weigh(dst []float32, first int, halfLife float64, shares shares) float32 {
	clear(dst)
	decay := float32(math.Exp2(-1 / halfLife))
	var total float32
	w := float32(1)
	for i := first; i < b.blocks && w > 1e-6; i++ {
		for a, share := range shares {
			dst[i*levelAtoms+a] = w * share
			total += w * share * b.counts[i*levelAtoms+a]
		}
		w *= decay
	}
	return total
}
