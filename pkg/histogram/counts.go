// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package histogram

import (
	"math"
	"slices"
)

const (
	// MaxCountBuckets limits Counts to 7 octaves, a factor of 128 below the largest value. Lower values are counted
	// in the lowest bucket; sum, mean, count and maximum stay exact. The size is at most 896 bytes while no bucket
	// exceeds 65,535.
	MaxCountBuckets = 7 * BucketsPerOctave
	// growCountsBy is how many spare buckets the window gets when it grows to either side.
	growCountsBy = 8
)

// Counts is a plain distribution with whole-number weights, made to be kept in large numbers: two bytes for a bucket
// until one passes 65,535 samples, four after. The zero value is empty and ready. It is not safe for use by several
// goroutines at once.
type Counts struct {
	total uint32
	zero  uint32
	first int32
	// low and high are rounded outwards to float32, so that they still bound every value.
	low, high float32
	sum       float64
	// narrow holds the buckets until one would overflow; then wide does and narrow is nil.
	narrow []uint16
	wide   []uint32
}

// Add counts value once and reports whether it did: a value that is NaN, infinite or below zero is refused, and so is
// one that would overflow the 4,294,967,295 samples that Counts can hold, or the range of a float32.
func (c *Counts) Add(value float64) bool {
	if !isUsage(value) || value > math.MaxFloat32 || c.total == math.MaxUint32 {
		return false
	}

	// The extremes come first: widen limits the window by them.
	if value < float64(c.low) || value > float64(c.high) || c.total == 0 {
		c.updateExtremes(roundDown(value), roundUp(value))
	}

	c.total++
	c.sum += value
	if value < ValueFloor {
		c.zero++
		return true
	}

	bucket := bucketOf(value)
	i := bucket - int(c.first)
	if i < 0 || i >= c.len() {
		c.widen(bucket, bucket)
		i = max(bucket-int(c.first), 0)
	}

	if c.wide != nil {
		c.wide[i]++
		return true
	}

	if c.narrow[i] == math.MaxUint16 {
		c.broaden()
		c.wide[i]++
		return true
	}

	c.narrow[i]++
	return true
}

// Merge adds all that other holds and reports whether it did: it refuses where the number of samples would overflow.
// other is not changed.
func (c *Counts) Merge(other *Counts) bool {
	if other.total == 0 {
		return true
	}

	if c.total > math.MaxUint32-other.total {
		return false
	}

	c.updateExtremes(other.low, other.high)
	if n := other.len(); n > 0 {
		c.widen(int(other.first), int(other.first)+n-1)
	}

	for i := range other.len() {
		if n := other.at(i); n > 0 {
			c.bump(max(int(other.first)+i-int(c.first), 0), n)
		}
	}

	c.total += other.total
	c.zero += other.zero
	c.sum += other.sum

	return true
}

// Total is the number of samples.
func (c *Counts) Total() uint32 { return c.total }

// Sum is the sum of the samples, exact but for rounding.
func (c *Counts) Sum() float64 { return c.sum }

// Max is the largest sample, to the precision of a float32 and never below it; NaN when empty.
func (c *Counts) Max() float64 {
	if c.total == 0 {
		return math.NaN()
	}

	return float64(c.high)
}

// Quantile returns the value below which a share q (0..1, clamped) of the samples lies; NaN when empty. The error is
// bounded by RelativeError for values within a factor of 128 of the maximum.
func (c *Counts) Quantile(q float64) float64 {
	if c.wide != nil {
		return viewOf(c, c.wide).quantile(q)
	}

	return viewOf(c, c.narrow).quantile(q)
}

// Above returns the estimated number of samples above x, and the sum of their differences to x.
func (c *Counts) Above(x float64) (samples, excess float64) {
	if c.wide != nil {
		return viewOf(c, c.wide).above(x)
	}

	return viewOf(c, c.narrow).above(x)
}

// Point is a point in the tail of a distribution: the share of the samples that lies above a value.
type Point struct{ Value, Share float64 }

// AppendTail appends to dst the lower edges of the buckets with samples, from the largest value down to the bucket in
// which the given share of the samples is reached, where it appends the interpolated value. It allocates nothing if
// dst has capacity for MaxCountBuckets+1 points.
func (c *Counts) AppendTail(dst []Point, share float64) []Point {
	if c.wide != nil {
		return appendTail(dst, c, c.wide, share)
	}

	return appendTail(dst, c, c.narrow, share)
}

func appendTail[T uint16 | uint32](dst []Point, c *Counts, bins []T, share float64) []Point {
	dst = slices.Grow(dst, len(bins)+1)
	tail := dst[len(dst) : len(dst)+len(bins)+1]

	// Which buckets are empty cannot be foreseen; so each is written down, and the next one overwrites an empty one.
	n := 0

	seen := uint32(0)
	reached := 0.0
	perSample := 1 / float64(c.total)
	for i := len(bins) - 1; i >= 0 && reached < share; i-- {
		seen += uint32(bins[i])
		reached = float64(seen) * perSample
		tail[n] = Point{Value: lowerEdge(int(c.first) + i), Share: reached}

		if bins[i] != 0 {
			n++
		}
	}

	if n == 0 {
		return dst
	}

	if last := &tail[n-1]; last.Share > share {
		above := 0.0
		if n > 1 {
			above = tail[n-2].Share
		}

		upper := max(last.Value, min(lowerEdge(bucketOf(last.Value)+1), float64(c.high)))
		*last = Point{Value: upper - (share-above)/(last.Share-above)*(upper-last.Value), Share: share}
	}

	return dst[:len(dst)+n]
}

// CountAbove is the first result of Above, in less time.
func (c *Counts) CountAbove(x float64) float64 {
	switch {
	case c.total == 0 || x >= float64(c.high):
		return 0
	case x < ValueFloor:
		return float64(c.total - c.zero)
	case c.wide != nil:
		return countAbove(c, c.wide, x)
	}

	return countAbove(c, c.narrow, x)
}

func countAbove[T uint16 | uint32](c *Counts, bins []T, x float64) float64 {
	boundary := bucketOf(x) - int(c.first)
	seen := uint32(0)
	for i := len(bins) - 1; i > boundary && i >= 0; i-- {
		seen += uint32(bins[i])
	}

	if boundary < 0 || boundary >= len(bins) || bins[boundary] == 0 {
		return float64(seen)
	}

	lower, upper := viewOf(c, bins).edges(boundary)
	switch {
	case x <= lower:
		return float64(seen) + float64(bins[boundary])
	case x >= upper:
		return float64(seen)
	}

	return float64(seen) + float64(bins[boundary])*(upper-x)/(upper-lower)
}

// Compact releases spare memory; call it after the last addition.
func (c *Counts) Compact() {
	if c.narrow != nil && cap(c.narrow) > len(c.narrow) {
		c.narrow = append(make([]uint16, 0, len(c.narrow)), c.narrow...)
	}
	if c.wide != nil && cap(c.wide) > len(c.wide) {
		c.wide = append(make([]uint32, 0, len(c.wide)), c.wide...)
	}
}

func viewOf[T number](c *Counts, bins []T) view[T] {
	return view[T]{
		zero:  float64(c.zero),
		first: int(c.first),
		bins:  bins,
		total: float64(c.total),
		low:   float64(c.low),
		high:  float64(c.high),
	}
}

func (c *Counts) len() int { return len(c.narrow) + len(c.wide) }

func (c *Counts) at(i int) uint32 {
	if c.wide != nil {
		return c.wide[i]
	}

	return uint32(c.narrow[i])
}

// bump adds n to bucket i of the window; the caller has made sure that the total does not overflow.
func (c *Counts) bump(i int, n uint32) {
	if c.wide == nil && uint32(c.narrow[i])+n > math.MaxUint16 {
		c.broaden()
	}

	if c.wide != nil {
		c.wide[i] += n
		return
	}

	c.narrow[i] += uint16(n)
}

// broaden converts the buckets to four bytes.
func (c *Counts) broaden() {
	c.wide = make([]uint32, len(c.narrow))
	for i, n := range c.narrow {
		c.wide[i] = uint32(n)
	}
	c.narrow = nil
}

func (c *Counts) updateExtremes(low, high float32) {
	if c.total == 0 {
		c.low = low
		c.high = high
		return
	}

	c.low = min(c.low, low)
	c.high = max(c.high, high)
}

// widen makes the window hold the buckets low to high, as far as MaxCountBuckets allows below the largest value; the
// lowest fold into one. The extremes are up to date when it is called.
func (c *Counts) widen(low, high int) {
	first := int(c.first)
	last := int(c.first) + c.len() - 1
	if c.len() == 0 {
		first = low
		last = high
	}

	if low >= first && high <= last && c.len() > 0 {
		return
	}

	if low < first {
		low = max(low-growCountsBy, 0)
	}
	if high > last {
		high += growCountsBy
	}

	// Spare buckets above the largest value must not push out buckets that are in use.
	largest := bucketOf(max(float64(c.high), ValueFloor))

	first = max(min(first, low), largest-MaxCountBuckets+1)
	last = min(max(last, high), first+MaxCountBuckets-1)
	if c.len() > 0 && first == int(c.first) && last == first+c.len()-1 {
		return
	}

	if c.wide != nil {
		c.wide = moveWide(c.wide, int(c.first)-first, last-first+1)
	} else {
		moved, lost := moveNarrow(c.narrow, int(c.first)-first, last-first+1)
		c.narrow = moved
		if lost > 0 {
			c.broaden()
			c.wide[0] += lost
		}
	}

	c.first = int32(first)
}

// moveWide returns n buckets with old[i] at i+offset; the content of negative indexes is added to bucket 0.
func moveWide(old []uint32, offset, n int) []uint32 {
	moved := make([]uint32, n)
	for i, v := range old {
		if v > 0 {
			moved[max(i+offset, 0)] += v
		}
	}

	return moved
}

// moveNarrow is moveWide for two-byte buckets; lost is the excess of bucket 0, which the caller must add to it.
func moveNarrow(old []uint16, offset, n int) (moved []uint16, lost uint32) {
	moved = make([]uint16, n)
	folded := uint32(0)
	for i, v := range old {
		switch {
		case v == 0:
		case i+offset <= 0:
			folded += uint32(v)
		default:
			moved[i+offset] = v
		}
	}

	moved[0] = uint16(min(folded, math.MaxUint16))
	return moved, folded - uint32(moved[0])
}

// roundDown and roundUp return the nearest float32 not above and not below v, which lies in the range of a float32.
func roundDown(v float64) float32 {
	f := float32(v)
	if float64(f) > v {
		f = math.Nextafter32(f, 0)
	}

	return f
}

func roundUp(v float64) float32 {
	f := float32(v)
	if float64(f) < v {
		f = math.Nextafter32(f, math.MaxFloat32)
	}

	return f
}
