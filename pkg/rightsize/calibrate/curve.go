// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"slices"
	"time"

	"crane.io/crane/pkg/series"
)

const (
	// levelsPerOctave is the number of requests of a Curve for each doubling: they are 9 % apart.
	levelsPerOctave = 8
	// maxLevels bounds a Curve: the highest request is 256 times the lowest one. It is the number of bits of a set of levels.
	maxLevels = 64
	// lowestUse is the usage, in cores or any other unit, up to which a sample counts as zero in a Curve.
	lowestUse = 1e-9
	// lowestLevel and highestLevel bound the levels of a decoded Curve: those of lowestUse and of the largest float32.
	lowestLevel  = -32 * levelsPerOctave
	highestLevel = 128 * levelsPerOctave
)

// Curve is the effect of a reaction on the usage of one day, by the constant request that the reaction raises: the time above the request,
// and the requests that raises add. It replaces samples in their order, which are not kept. Curves of pods add up. The zero value is the
// curve of no usage.
type Curve struct {
	// first is the level of points[0]; the request of a level is 2^(level/levelsPerOctave). Requests above the last point are never exceeded.
	first  int32
	points []curvePoint
	// lowRaised is the number of raised samples at the first level.
	lowRaised uint32
	// cut is set if there are more than maxLevels: requests below the first of these are then not known.
	cut bool
}

type curvePoint struct {
	// above is the number of samples above the request in force.
	above uint32
	// added is the sum over the samples of the difference between the request in force and the constant request.
	added float32
}

func requestOf(level int32) float64 { return math.Exp2(float64(level) / levelsPerOctave) }

// NewCurve replays the usage of one pod. Usage that begins at midnight is replayed as if the usage before had been like that after it, in
// the other order, for as long as a raise holds: so the result does not depend on other days, and a raise that holds at midnight is not
// forgotten. At another time nothing is raised at the beginning. Gaps, and infinite or negative values, are neither above a request nor
// reacted to.
func NewCurve(s series.Series, reaction Reaction) *Curve {
	c := &Curve{}
	lowest := math.Inf(1)
	highest := 0.0
	for _, v := range s.Values {
		if usable(v) && v > lowestUse {
			lowest = min(lowest, v)
			highest = max(highest, v)
		}
	}

	if highest == 0 || s.Step <= 0 {
		return c
	}

	end := int32(math.Ceil(levelsPerOctave * math.Log2(highest)))
	for ; requestOf(end) < highest; end++ { // The logarithm may be rounded down.
	}

	// Below this level, every sample exceeds the request by so much that all requests are raised at the same times.
	c.first = int32(math.Floor(levelsPerOctave * math.Log2(lowest/bigExcess)))
	for ; bigExcess*requestOf(c.first) >= lowest; c.first-- {
	}

	if c.first < end-maxLevels {
		c.first = end - maxLevels
		c.cut = true
	}

	c.points = make([]curvePoint, end-c.first)
	usage, before := withUsageBefore(s, reaction)
	newCurveReplay(c, usage, before, reaction).run()

	return c
}

// withUsageBefore returns the usage with the samples that NewCurve assumes before it, and the number of these.
func withUsageBefore(s series.Series, reaction Reaction) (usage series.Series, before int) {
	if s.Start.Sub(series.DayOf(s.Start).Start()) >= s.Step {
		return s, 0
	}

	before = min(lagOf(reaction.Delay, s.Step)+int((reaction.Hold+s.Step-1)/s.Step), len(s.Values))
	usage = series.Series{Start: s.Start.Add(-time.Duration(before) * s.Step), Step: s.Step, Values: make([]float64, 0, before+len(s.Values))}
	usage.Values = append(usage.Values, s.Values[:before]...)
	slices.Reverse(usage.Values)
	usage.Values = append(usage.Values, s.Values...)

	return usage, before
}

// Add adds the curve of other usage. Samples must be in one of the two only.
func (c *Curve) Add(other *Curve) {
	if len(other.points) == 0 {
		return
	}

	if len(c.points) == 0 {
		*c = *other
		c.points = slices.Clone(other.points)
		return
	}

	out := Curve{first: min(c.first, other.first), lowRaised: c.lowRaised + other.lowRaised, cut: c.cut || other.cut}
	end := max(c.end(), other.end())
	if out.first < end-maxLevels { // So it is if one of them is cut.
		out.first = end - maxLevels
		out.cut = true
	}

	out.points = make([]curvePoint, end-out.first)
	for i := range out.points {
		level := out.first + int32(i)
		a := c.point(level)
		b := other.point(level)
		out.points[i] = curvePoint{a.above + b.above, a.added + b.added}
	}

	*c = out
}

func (c *Curve) end() int32 { return c.first + int32(len(c.points)) }

// point returns the point of a level; of one below the first level, unless the curve is cut, the samples above the request are the same, and
// what raises add grows by the difference of the requests.
func (c *Curve) point(level int32) curvePoint {
	switch {
	case len(c.points) == 0 || level >= c.end():
		return curvePoint{}
	case level >= c.first:
		return c.points[level-c.first]
	}

	return c.belowFirst(requestOf(level))
}

func (c *Curve) belowFirst(request float64) curvePoint {
	p := c.points[0]
	p.added += float32(float64(c.lowRaised) * (requestOf(c.first) - request))
	return p
}

// At returns the number of samples above a request with the reaction, and the sum of what raises add to the request, interpolated between
// two levels; ok is false if they are not known.
func (c *Curve) At(request float64) (above, added float64, ok bool) {
	position := levelsPerOctave * math.Log2(request)
	if level := math.Round(position); math.Abs(position-level) < 1e-9 { // The logarithm of a level is rounded.
		position = level
	}

	switch {
	case len(c.points) == 0 || position >= float64(c.end()):
		return 0, 0, true
	case position < float64(c.first) && c.cut:
		return 0, 0, false
	case position < float64(c.first):
		p := c.belowFirst(request)
		return float64(p.above), float64(p.added), true
	}

	level := int32(math.Floor(position))
	low := c.point(level)
	high := c.point(level + 1)
	share := position - float64(level)

	return (1-share)*float64(low.above) + share*float64(high.above), (1-share)*float64(low.added) + share*float64(high.added), true
}

// curveReplay replays the usage of one pod at all levels at once. Levels are bits of a set; times are indexes of samples.
type curveReplay struct {
	curve *Curve
	usage series.Series
	// before is the number of samples that are reacted to and not counted.
	before   int
	reaction Reaction
	// lag is the number of samples after which one is known, hold the number for which a raise holds.
	lag, hold int
	// requests are those of the levels; counted has the number of usable samples before each one, from before on.
	requests []float64
	counted  []uint32
	raises   [maxLevels]levelRaise
	// active are the levels that are raised; none of them ends before firstEnd or is below lowest.
	active   uint64
	firstEnd int
	lowest   float64
}

// levelRaise is a raise to a request for the samples from <= i < until.
type levelRaise struct {
	request     float64
	from, until int
}

func newCurveReplay(c *Curve, s series.Series, before int, reaction Reaction) *curveReplay {
	r := &curveReplay{
		curve:    c,
		usage:    s,
		before:   before,
		reaction: reaction,
		lag:      lagOf(reaction.Delay, s.Step),
		hold:     int((reaction.Hold + s.Step - 1) / s.Step),
		requests: make([]float64, len(c.points)),
		counted:  make([]uint32, len(s.Values)+1),
		firstEnd: math.MaxInt,
		lowest:   math.Inf(1),
	}

	for i := range r.requests {
		r.requests[i] = requestOf(c.first + int32(i))
	}

	// Differences of these sums are the samples of a raise without gaps.
	for i, v := range s.Values {
		r.counted[i+1] = r.counted[i]
		if i >= before && usable(v) {
			r.counted[i+1]++
		}
	}

	return r
}

func (r *curveReplay) run() {
	recent := NewRecent(r.usage.Step)
	below := make([]uint64, min(r.lag, len(r.usage.Values))) // the levels below the last samples, in turn
	for i, v := range r.usage.Values {
		if i >= r.firstEnd {
			r.end(i)
		}

		last := &below[i%len(below)]
		if i >= r.lag {
			use := r.usage.Values[i-r.lag]
			recent.Add(use)

			if above := r.above(use, *last); above != 0 {
				r.react(i, above, &recent)
			}
		}

		*last = r.below(v)
		if i < r.before {
			continue
		}

		for above := r.above(v, *last); above != 0; above &= above - 1 {
			r.curve.points[bits.TrailingZeros64(above)].above++
		}
	}

	r.end(math.MaxInt)
}

// below returns the levels below a usage; none for a value that is not one.
func (r *curveReplay) below(use float64) uint64 {
	if !usable(use) {
		return 0
	}

	n, _ := slices.BinarySearch(r.requests, use)
	return ^uint64(0) >> (maxLevels - n)
}

// above returns the levels, of those below a usage, whose request in force is exceeded.
func (r *curveReplay) above(use float64, below uint64) uint64 {
	out := below &^ r.active
	if use > r.lowest {
		for raised := below & r.active; raised != 0; raised &= raised - 1 {
			if k := bits.TrailingZeros64(raised); use > r.raises[k].request {
				out |= 1 << k
			}
		}
	}

	return out
}

// react raises the levels of a set, whose requests in force are exceeded, if the last samples require it.
func (r *curveReplay) react(now int, levels uint64, recent *Recent) {
	for ; levels != 0; levels &= levels - 1 {
		k := bits.TrailingZeros64(levels)
		raised := r.active&(1<<k) != 0
		inForce := r.requests[k]
		if raised {
			inForce = r.raises[k].request
		}

		if !recent.Exceeds(inForce) {
			continue
		}

		target := r.reaction.Headroom * recent.Max()
		if raised {
			r.account(k, now)
		}

		r.raises[k] = levelRaise{target, now, now + r.hold}
		r.active |= 1 << k
		r.firstEnd = min(r.firstEnd, now+r.hold)
		r.lowest = min(r.lowest, target)
	}
}

// end ends the raises that do not hold for a sample any more.
func (r *curveReplay) end(now int) {
	r.firstEnd = math.MaxInt
	r.lowest = math.Inf(1)
	for raised := r.active; raised != 0; raised &= raised - 1 {
		k := bits.TrailingZeros64(raised)
		current := r.raises[k]
		if now >= current.until || now == math.MaxInt {
			r.account(k, min(current.until, len(r.usage.Values)))
			r.active &^= 1 << k
			continue
		}

		r.firstEnd = min(r.firstEnd, current.until)
		r.lowest = min(r.lowest, current.request)
	}
}

// account adds what the raise of a level added up to a sample.
func (r *curveReplay) account(k, until int) {
	current := r.raises[k]
	samples := r.counted[until] - r.counted[current.from]
	r.curve.points[k].added += float32(float64(samples) * (current.request - r.requests[k]))
	if k == 0 {
		r.curve.lowRaised += samples
	}
}

// Append appends the curve in binary form.
func (c *Curve) Append(out []byte) []byte {
	flag := byte(0)
	if c.cut {
		flag = 1
	}

	out = binary.AppendVarint(append(out, flag), int64(c.first))
	out = binary.AppendUvarint(out, uint64(c.lowRaised))
	for _, p := range c.points {
		out = binary.AppendUvarint(out, uint64(p.above))
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(p.added))
	}

	return out
}

var errCurve = errors.New("not the curve of a reaction")

// ParseCurve returns the curve of a binary form.
func ParseCurve(data []byte) (*Curve, error) {
	if len(data) == 0 || data[0] > 1 {
		return nil, errCurve
	}

	c := &Curve{cut: data[0] == 1}
	first, n := binary.Varint(data[1:])
	if n <= 0 || first < lowestLevel || first > highestLevel {
		return nil, errCurve
	}

	data = data[1+n:]
	raised, n := binary.Uvarint(data)
	if n <= 0 || raised > math.MaxUint32 {
		return nil, errCurve
	}

	c.first = int32(first)
	c.lowRaised = uint32(raised)

	// A point is a varint and a float32; there are at most as many as bits in a set of levels.
	for data = data[n:]; len(data) > 0; {
		above, n := binary.Uvarint(data)
		if n <= 0 || above > math.MaxUint32 || len(data) < n+4 || len(c.points) == maxLevels {
			return nil, errCurve
		}

		added := math.Float32frombits(binary.LittleEndian.Uint32(data[n:]))
		if !(added >= 0 && added <= math.MaxFloat32) {
			return nil, errCurve
		}

		c.points = append(c.points, curvePoint{uint32(above), added})
		data = data[n+4:]
	}

	c.points = slices.Clip(c.points)
	if c.cut && len(c.points) != maxLevels {
		return nil, errCurve
	}

	return c, nil
}
