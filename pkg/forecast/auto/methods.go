// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"math"
	"slices"
)

// place is the resolution at which a method looks at the time of the season.
type place int

const (
	atSlot  place = iota // each sub-slot for itself
	atUnit               // each unit
	atBlock              // about an hour and its neighbours
	atLevel              // no time of the season at all
	atScale              // each sub-slot, every season scaled to the newest one's level
	atWeek               // rows of the same weekday
)

// kernel says which history a method weighs how much: by resolution, by age, and by likeness.
type kernel struct {
	name  string
	place place
	// halfLife is the age at which a season counts half: in seasons, for atLevel in days.
	halfLife float64
	// drawn smooths over neighbouring places.
	drawn bool
	// like discounts seasons that do not look like the same weekday of last week.
	like bool
	// scaled brings each week to the level of the newest one; for atWeek.
	scaled bool
	// long is for histories of more than two weeks alone.
	long bool
}

// noDecay is a half-life that makes two weeks weigh the same.
const noDecay = 1000

// middleKernels are the candidates for the median. Each is best on some kind of series: short half-lives follow drift
// and new levels, long ones average noise away, fine places keep sharp edges, atLevel serves series without a season,
// like ones know weekends.
func middleKernels() []kernel {
	return []kernel{
		{name: "yesterday", place: atSlot, halfLife: 0.5},
		{name: "recent days", place: atSlot, halfLife: 2},
		{name: "all days", place: atSlot, halfLife: noDecay},
		{name: "like days", place: atSlot, halfLife: 7, like: true},
		{name: "smooth recent days", place: atUnit, halfLife: 3, drawn: true},
		{name: "smooth like days", place: atUnit, halfLife: noDecay, like: true},
		{name: "smooth all days", place: atUnit, halfLife: noDecay, drawn: true},
		{name: "scaled days", place: atScale, halfLife: 3},
		{name: "same weekday", place: atWeek},
		{name: "same weekday, scaled", place: atWeek, drawn: true, scaled: true, long: true},
		{name: "level of hours", place: atLevel, halfLife: 0.25},
		{name: "level of a day", place: atLevel, halfLife: 1},
		{name: "level of weeks", place: atLevel, halfLife: noDecay},
	}
}

// tailKernels are the candidates for the upper quantiles; the residuals of the median join them.
func tailKernels() []kernel {
	return []kernel{
		{name: "recent days", place: atUnit, halfLife: 2},
		{name: "all days", place: atUnit, halfLife: noDecay},
		{name: "like days", place: atUnit, halfLife: noDecay, like: true},
		{name: "smooth recent days", place: atBlock, halfLife: 3},
		{name: "level of days", place: atLevel, halfLife: 3},
		{name: "same weekday", place: atWeek, long: true},
		{name: "same weekday, scaled", place: atWeek, scaled: true, long: true},
		referenceKernel(),
	}
}

// referenceKernel is what skill is measured against: one constant quantile of all history.
func referenceKernel() kernel {
	return kernel{name: "level of weeks", place: atLevel, halfLife: noDecay}
}

// banks are all views of one history, each sorted once.
type banks struct {
	grid      *grid
	tuning    tuning
	fine      *bank
	scaled    *bank
	units     *bank
	blocks    *bank
	level     *levelBank
	weeks     *weeks
	perBlock  int
	distances [][]float64

	rowWeights []float32
	weights    []float32
}

func newBanks(m *Model, g *grid, t tuning) *banks {
	perBlock := m.layout.perBlock()
	summary := summariseBlocks(g, perBlock)
	sorted, scratch := sortUnits(g)
	b := &banks{
		grid: g, tuning: t, perBlock: perBlock,
		units: unitBank(g, sorted), fine: fineBank(g, sorted, scratch), level: newLevelBank(g, perBlock, sorted),
		distances: g.distances(), rowWeights: make([]float32, len(g.rows)),
	}
	b.scaled = scaledBank(g, scratch)
	b.blocks = blockBank(g, perBlock, summary, scratch)
	b.weeks = newWeeks(m, g, perBlock, summary)
	b.weights = make([]float32, max(len(g.rows)*unitAtoms, len(b.level.counts)))
	return b
}

// weigh fills rowWeights for a target row: 0 for rows that are not older than it. ahead is how many seasons after the
// origin the target lies, 0 for the first and for replays.
func (b *banks) weigh(k kernel, target, ahead int) {
	decay := math.Exp2(-1 / k.halfLife)
	w := 1.0
	for j := range b.rowWeights {
		b.rowWeights[j] = 0
		if j > target {
			b.rowWeights[j] = float32(w)
			w *= decay
		}
	}
	if !k.like || b.grid.likes == 0 {
		return
	}
	var away [maxRows]float64
	if !b.unlike(target, ahead, away[:len(b.rowWeights)]) {
		return
	}
	var found [maxRows]float64
	n := 0
	for _, d := range away[target+1 : len(b.rowWeights)] {
		if d >= 0 {
			found[n] = d
			n++
		}
	}
	if n == 0 {
		return
	}
	slices.Sort(found[:n])
	least, typical := found[0], found[n/2]
	if !(typical > 0) {
		return
	}
	for j := target + 1; j < len(b.rowWeights); j++ {
		if d := away[j]; d > least {
			b.rowWeights[j] *= float32(math.Exp(-b.tuning.likeness * (d - least) / typical))
		}
	}
}

// spread multiplies row weights by atom shares into weights.
func (b *banks) spread(share []float32) {
	for j, w := range b.rowWeights {
		for a, s := range share {
			b.weights[j*len(share)+a] = w * s
		}
	}
}

// middle forecasts the median of a target row: a value for each sub-slot, or with coarse only for the middle sub-slot of
// each unit.
func (b *banks) middle(k kernel, target, ahead int, coarse bool, out []float32) {
	if k.place == atLevel {
		b.levelMiddle(k, target, out)
		return
	}
	if k.place == atWeek {
		b.weeks.middle(k, target, ahead, coarse, out)
		return
	}
	b.weigh(k, target, ahead)
	switch k.place {
	case atSlot:
		b.fineMiddle(b.fine, 1, coarse, out)
	case atScale:
		b.fineMiddle(b.scaled, b.grid.levelBefore(target), coarse, out)
	case atUnit:
		b.coarseMiddle(b.units, 1, coarse, out)
		if k.drawn {
			per := 1
			if !coarse {
				per = b.grid.sub
			}
			draw(out, per)
		}
	case atBlock:
		b.coarseMiddle(b.blocks, b.perBlock, coarse, out)
	}
}

func (b *banks) fineMiddle(from *bank, scale float64, coarse bool, out []float32) {
	g := b.grid
	first, stride := 0, 1
	if coarse {
		first, stride = g.sub/2, g.sub
	}
	total := from.total(b.rowWeights)
	for i := range out {
		list := from.lists[first+i*stride]
		if !from.whole {
			total = list.total(b.rowWeights)
		}
		if v, ok := list.median(b.rowWeights, total); ok {
			out[i] = float32(v * scale)
		} else {
			out[i] = float32(g.flat)
		}
	}
}

func (b *banks) coarseMiddle(from *bank, per int, coarse bool, out []float32) {
	g := b.grid
	b.spread(from.middle)
	copies := per * g.sub
	if coarse {
		copies = per
	}
	total := from.total(b.weights)
	for l, list := range from.lists {
		if !from.whole {
			total = list.total(b.weights)
		}
		v, ok := list.median(b.weights, total)
		if !ok {
			v = g.flat
		}
		for i := l * copies; i < min(len(out), (l+1)*copies); i++ {
			out[i] = float32(v)
		}
	}
}

// levelBefore returns the level of the newest full row before a target.
func (g *grid) levelBefore(target int) float64 {
	for j := target + 1; j < len(g.rows); j++ {
		if g.rows[j].full() && g.rows[j].level > 0 {
			return g.rows[j].level
		}
	}
	return g.flat
}

// firstBlock returns the age of the newest block that is older than a target row.
func (b *banks) firstBlock(target int) int {
	return ((target+1)*b.grid.slots + b.perBlock - 1) / b.perBlock
}

// weighLevel prepares the weights of the level bank and returns the weight of all its atoms.
func (b *banks) weighLevel(k kernel, target int, shares shares) float32 {
	halfLife := k.halfLife * float64(b.grid.perDay) / float64(b.perBlock)
	return b.level.weigh(b.weights[:len(b.level.counts)], b.firstBlock(target), halfLife, shares)
}

func (b *banks) levelMiddle(k kernel, target int, out []float32) {
	v, ok := b.level.middles.median(b.weights, b.weighLevel(k, target, shares{1, 0, 0}))
	if !ok {
		v = b.grid.flat
	}
	fill(out, float32(v))
}

// upper forecasts quantiles of a target row: out has len(above) values for each slot.
func (b *banks) upper(k kernel, target, ahead int, above []float32, out []float32) {
	g, n := b.grid, len(above)
	if k.place == atLevel {
		if !b.level.list.upper(b.weights, b.weighLevel(k, target, g.shares), above, out[:n]) {
			fill(out[:n], float32(g.flat))
		}
		repeat(out, n)
		return
	}
	if k.place == atWeek {
		b.weeks.upper(k, target, ahead, above, out)
		return
	}
	b.weigh(k, target, ahead)
	from, per := b.units, 1
	if k.place == atBlock {
		from, per = b.blocks, b.perBlock
	}
	b.spread(from.share)
	total := from.total(b.weights)
	for l, list := range from.lists {
		part := out[l*per*n : min(len(out), (l+1)*per*n)]
		if !from.whole {
			total = list.total(b.weights)
		}
		if !list.upper(b.weights, total, above, part[:n]) {
			fill(part[:n], float32(g.flat))
		}
		repeat(part, n)
	}
}

// draw smooths values that are constant over runs of per: each run's value becomes the mean of it, twice, and of its
// neighbours, and values between the middles of runs are interpolated. The season is a circle.
func draw(out []float32, per int) {
	n := len(out) / per
	if n < 3 {
		return
	}
	first, last := out[0], out[(n-1)*per]
	previous := last
	for i := range n {
		own, next := out[i*per], first
		if i+1 < n {
			next = out[(i+1)*per]
		}
		out[i*per] = (previous + 2*own + next) / 4
		previous = own
	}
	if per == 1 {
		return
	}
	knots := make([]float32, n)
	for i := range knots {
		knots[i] = out[i*per]
	}
	for i := range out {
		at := (float32(i)+0.5)/float32(per) - 0.5
		if at < 0 {
			at += float32(n)
		}
		k := int(at)
		w := at - float32(k)
		out[i] = knots[k%n] + w*(knots[(k+1)%n]-knots[k%n])
	}
}

func fill(out []float32, v float32) {
	for i := range out {
		out[i] = v
	}
}

// repeat copies the first n values over the rest.
func repeat(out []float32, n int) {
	for i := n; i < len(out); i++ {
		out[i] = out[i-n]
	}
}
