// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package histogram

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"crane.io/crane/pkg/checksum"
)

// The first two bytes of a checkpoint: the kind of its content and the version of its layout.
const (
	kindCounts   = 'C'
	codecVersion = 1
)

// ErrCorrupt is wrapped by the errors of invalid checkpoints: truncated, altered or out of range.
var ErrCorrupt = errors.New("corrupt histogram checkpoint")

// MarshalBinary writes the counts as a versioned, checksummed checkpoint of one to two bytes a bucket. It never fails.
func (c *Counts) MarshalBinary() ([]byte, error) {
	return c.AppendBinary(make([]byte, 0, 48+2*c.len()))
}

// AppendBinary appends the result of MarshalBinary to out.
func (c *Counts) AppendBinary(out []byte) ([]byte, error) {
	begin := len(out)
	out = append(out, kindCounts, codecVersion)
	out = binary.AppendUvarint(out, uint64(c.total))
	out = binary.AppendUvarint(out, uint64(c.zero))
	out = binary.LittleEndian.AppendUint32(out, math.Float32bits(c.low))
	out = binary.LittleEndian.AppendUint32(out, math.Float32bits(c.high))

	out = binary.LittleEndian.AppendUint64(out, math.Float64bits(c.sum))
	out = binary.AppendUvarint(out, uint64(c.first))
	out = binary.AppendUvarint(out, uint64(c.len()))
	for i := range c.len() {
		out = binary.AppendUvarint(out, uint64(c.at(i)))
	}

	return checksum.Append(out, begin), nil
}

// UnmarshalBinary replaces the counts by those in a checkpoint that MarshalBinary wrote. On an error, which wraps
// ErrCorrupt or names an unknown version, the counts are unchanged.
func (c *Counts) UnmarshalBinary(data []byte) error {
	r, err := openCheckpoint(data)
	if err != nil {
		return err
	}

	total := r.uvarint()
	zero := r.uvarint()
	decoded := Counts{low: r.float32(), high: r.float32(), sum: r.float()}
	first := r.uvarint()

	n := r.uvarint()

	// The checksum detects damage, but not what was written out of bounds: it would need unlimited memory, or an index beyond the
	// buckets.
	if n > MaxCountBuckets || first > maxBucket || first+n > maxBucket || total > math.MaxUint32 || zero > total || decoded.low > decoded.high {
		return fmt.Errorf("%w: %d samples, %d of them zero, in %d buckets from %d", ErrCorrupt, total, zero, n, first)
	}

	decoded.total = uint32(total)
	decoded.zero = uint32(zero)
	decoded.first = int32(first)
	if n > 0 {
		decoded.narrow = make([]uint16, n)
	}

	sum := zero
	for i := range int(n) {
		v := r.uvarint()
		sum += v
		if v > total || sum > total {
			return fmt.Errorf("%w: the buckets hold more than the %d samples there are", ErrCorrupt, total)
		}

		if v > 0 && int(first)+i > bucketOf(max(float64(decoded.high), ValueFloor)) {
			return fmt.Errorf("%w: samples above the maximum of %v", ErrCorrupt, decoded.high)
		}

		decoded.bump(i, uint32(v))
	}

	if err := r.done(); err != nil {
		return err
	}

	if sum != total {
		return fmt.Errorf("%w: the buckets hold %d of %d samples", ErrCorrupt, sum, total)
	}

	*c = decoded
	return nil
}

// openCheckpoint checks kind, version and checksum and returns a reader of the content.
func openCheckpoint(data []byte) (*reader, error) {
	if len(data) < 2+checksum.Size {
		return nil, fmt.Errorf("%w: %d bytes", ErrCorrupt, len(data))
	}

	if data[0] != kindCounts {
		return nil, fmt.Errorf("%w: it holds a %q, want %q", ErrCorrupt, data[0], kindCounts)
	}

	if data[1] != codecVersion {
		return nil, fmt.Errorf("histogram checkpoint of version %d: this program reads version %d", data[1], codecVersion)
	}

	body, err := checksum.Trim(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}

	return &reader{rest: body[2:]}, nil
}

// reader reads the values of a checkpoint in turn; after the first failure it returns zeros, and done reports the failure.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) take(n int) []byte {
	if r.failed || len(r.rest) < n {
		r.failed = true
		return make([]byte, 8)[:n]
	}

	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if r.failed || n <= 0 {
		r.failed = true
		return 0
	}

	r.rest = r.rest[n:]
	return v
}

// float reads a value that must be finite and not below zero.
func (r *reader) float() float64 {
	v := math.Float64frombits(binary.LittleEndian.Uint64(r.take(8)))
	if !isUsage(v) {
		r.failed = true
		return 0
	}

	return v
}

func (r *reader) float32() float32 {
	v := math.Float32frombits(binary.LittleEndian.Uint32(r.take(4)))
	if !isUsage(float64(v)) {
		r.failed = true
		return 0
	}

	return v
}

// done returns an error unless the whole content was read without failure.
func (r *reader) done() error {
	if r.failed || len(r.rest) != 0 {
		return fmt.Errorf("%w: cut off, or a value is out of bounds", ErrCorrupt)
	}

	return nil
}
