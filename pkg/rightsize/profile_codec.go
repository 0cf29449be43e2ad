// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"crane.io/crane/pkg/checksum"
	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/series"
)

const (
	maxFloat32 = math.MaxFloat32

	profileKind = 'P'
	// Version 2 adds run times and unreclaimable memory, version 3 the effect of a reaction, version 4 implausible samples and
	// CPU limits, version 5 throttled samples; older ones are read without them.
	firstProfileVersion = 1
	reactionVersion     = 3
	implausibleVersion  = 4
	throttlingVersion   = 5
	profileVersion      = 5
	// maxProfileDays bounds the memory of a decoded checkpoint: about eleven years.
	maxProfileDays = 4096
)

// ErrCorrupt is returned, wrapped, for an invalid checkpoint.
var ErrCorrupt = errors.New("corrupt profile checkpoint")

// MarshalBinary returns the profile as a versioned checkpoint with a checksum. It never fails.
func (p *Profile) MarshalBinary() ([]byte, error) {
	out := append(make([]byte, 0, 64+600*len(p.days)), profileKind, profileVersion)
	out = binary.AppendUvarint(out, uint64(len(p.days)))
	for _, d := range p.days {
		out = binary.AppendVarint(out, int64(d.Day))
		out = binary.LittleEndian.AppendUint32(out, d.CPUHours)
		out = binary.LittleEndian.AppendUint32(out, d.MemoryHours)
		out = appendFloat32(out, d.StartCPU)
		out = appendFloat32(out, d.StartMemory)
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(d.CPUTime))

		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(d.MemoryTime))
		out = append(out, byte(d.ReclaimBasis))
		out = binary.LittleEndian.AppendUint32(out, d.AtLimit.Limited)
		out = binary.LittleEndian.AppendUint32(out, d.AtLimit.Samples)
		out = appendFloat32(out, d.AtLimit.Limit)
		out = binary.LittleEndian.AppendUint32(out, d.AtLimit.Throttled)
		out = appendFloat32(out, d.AtLimit.ThrottledLimit)
		for _, i := range []Implausible{d.ImplausibleCPU, d.ImplausibleMemory} {
			out = binary.LittleEndian.AppendUint32(out, i.Count)
			out = appendFloat32(out, i.Largest)
		}

		out = binary.AppendUvarint(out, uint64(len(d.Peaks)))
		for _, peak := range d.Peaks {
			out = binary.LittleEndian.AppendUint32(out, peak.Pod)
			out = appendFloat32(out, peak.First)
			out = appendFloat32(out, peak.Peak)
			out = appendFloat32(out, peak.CPU)
			out = appendFloat32(out, peak.Unreclaimable)
			out = binary.LittleEndian.AppendUint32(out, peak.MemoryHours)
			out = binary.LittleEndian.AppendUint32(out, peak.UnreclaimableHours)
		}

		for _, counts := range []interface{ MarshalBinary() ([]byte, error) }{&d.CPU, &d.Memory} {
			sketch, err := counts.MarshalBinary()
			if err != nil {
				return nil, fmt.Errorf("write the sketch of %v: %w", d.Day, err)
			}

			out = binary.AppendUvarint(out, uint64(len(sketch)))
			out = append(out, sketch...)
		}

		// The length is one more than that of the curve, and 0 for none.
		if d.Reaction == nil {
			out = binary.AppendUvarint(out, 0)
			continue
		}

		curve := d.Reaction.Append(nil)
		out = binary.AppendUvarint(out, uint64(len(curve))+1)
		out = append(out, curve...)
	}

	return checksum.Append(out, 0), nil
}

// UnmarshalBinary replaces the profile by that of a checkpoint. On an error, which wraps ErrCorrupt or names an unknown
// version, the profile is unchanged.
func (p *Profile) UnmarshalBinary(data []byte) error {
	if len(data) < 7 || data[0] != profileKind {
		return fmt.Errorf("%w: not a profile", ErrCorrupt)
	}

	if data[1] < firstProfileVersion || data[1] > profileVersion {
		return fmt.Errorf("profile checkpoint of version %d: this program reads versions %d to %d", data[1], firstProfileVersion, profileVersion)
	}

	body, err := checksum.Trim(data)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}

	r := &decoder{rest: body[2:], version: data[1]}
	n := r.count(maxProfileDays)
	days := make([]*Day, 0, n)
	for range n {
		d, err := r.day()
		if err != nil {
			return err
		}

		// Days are searched by date, so their order matters.
		if len(days) > 0 && days[len(days)-1].Day >= d.Day {
			return fmt.Errorf("%w: the days are not in order", ErrCorrupt)
		}

		days = append(days, d)
	}

	if r.failed || len(r.rest) != 0 {
		return fmt.Errorf("%w: cut off, or a value is out of bounds", ErrCorrupt)
	}

	p.days = days
	return nil
}

// decoder reads values from a checkpoint; after the first error it returns zeros.
type decoder struct {
	rest    []byte
	version byte
	failed  bool
}

func (r *decoder) day() (*Day, error) {
	date, n := binary.Varint(r.rest)
	if n <= 0 || date < math.MinInt32 || date > math.MaxInt32 {
		return nil, fmt.Errorf("%w: no date", ErrCorrupt)
	}

	r.rest = r.rest[n:]
	d := &Day{Day: series.Day(date), CPUHours: r.uint32(), MemoryHours: r.uint32()}

	d.StartCPU = r.float32()
	d.StartMemory = r.float32()

	// The first version lacks some fields, which stay zero.
	if r.version > firstProfileVersion {
		d.CPUTime = r.seconds()
		d.MemoryTime = r.seconds()
		d.ReclaimBasis = r.basis()
	}

	if r.version >= implausibleVersion {
		d.AtLimit = AtLimit{Limited: r.uint32(), Samples: r.uint32(), Limit: r.float32()}
		if r.version >= throttlingVersion {
			d.AtLimit.Throttled = r.uint32()
			d.AtLimit.ThrottledLimit = r.float32()
		}

		d.ImplausibleCPU = Implausible{Count: r.uint32(), Largest: r.float32()}
		d.ImplausibleMemory = Implausible{Count: r.uint32(), Largest: r.float32()}
	}

	if peaks := r.count(maxPodsPerDay); peaks > 0 {
		d.Peaks = make([]PodPeak, peaks)
	}

	for i := range d.Peaks {
		d.Peaks[i] = PodPeak{
			Pod:   r.uint32(),
			First: r.float32(),
			Peak:  r.float32(),
			CPU:   r.float32(),
		}

		if r.version > firstProfileVersion {
			d.Peaks[i].Unreclaimable = r.float32()
			d.Peaks[i].MemoryHours = r.uint32()
			d.Peaks[i].UnreclaimableHours = r.uint32()
		}
	}

	if err := d.CPU.UnmarshalBinary(r.take(r.count(len(r.rest)))); err != nil {
		return nil, fmt.Errorf("%w: CPU of %v: %w", ErrCorrupt, d.Day, err)
	}

	if err := d.Memory.UnmarshalBinary(r.take(r.count(len(r.rest)))); err != nil {
		return nil, fmt.Errorf("%w: memory of %v: %w", ErrCorrupt, d.Day, err)
	}

	if r.version < reactionVersion {
		return d, nil
	}

	n = r.count(len(r.rest))
	if n == 0 {
		return d, nil
	}

	var err error
	d.Reaction, err = calibrate.ParseCurve(r.take(n - 1))
	if err != nil {
		return nil, fmt.Errorf("%w: reaction of %v: %w", ErrCorrupt, d.Day, err)
	}

	return d, nil
}

func (r *decoder) take(n int) []byte {
	if r.failed || n > len(r.rest) {
		r.failed = true
		return nil
	}

	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

// count reads a length of at most limit.
func (r *decoder) count(limit int) int {
	v, n := binary.Uvarint(r.rest)
	if r.failed || n <= 0 || v > uint64(limit) {
		r.failed = true
		return 0
	}

	r.rest = r.rest[n:]
	return int(v)
}

// seconds reads a finite time of 0 or more.
func (r *decoder) seconds() float64 {
	b := r.take(8)
	if b == nil {
		return 0
	}

	v := math.Float64frombits(binary.LittleEndian.Uint64(b))
	if !(v >= 0 && v <= maxFloat32) {
		r.failed = true
		return 0
	}

	return v
}

func (r *decoder) basis() ReclaimBasis {
	b := r.take(1)
	if b == nil || ReclaimBasis(b[0]) > AnonymousOnly {
		r.failed = true
		return 0
	}

	return ReclaimBasis(b[0])
}

func (r *decoder) uint32() uint32 {
	b := r.take(4)
	if b == nil {
		return 0
	}

	return binary.LittleEndian.Uint32(b)
}

// float32 reads a finite value of 0 or more.
func (r *decoder) float32() float32 {
	v := math.Float32frombits(r.uint32())
	if !(v >= 0 && v <= maxFloat32) {
		r.failed = true
		return 0
	}

	return v
}

func appendFloat32(out []byte, v float32) []byte {
	return binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
}
