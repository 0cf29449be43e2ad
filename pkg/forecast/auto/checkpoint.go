// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package auto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/checksum"
	"crane.io/crane/pkg/forecast"
)

// A checkpoint is little endian: magic, version, the header's fields, the buffer, the slots from the oldest, and a
// CRC-32 (IEEE) of all before it.
const (
	checkpointMagic   = "CFM"
	checkpointVersion = 4
	headerSize        = 4 + 8*6 + 2*2
	cellSize          = 4 + 2*2
	// MaxCheckpoint is the size of the largest checkpoint.
	MaxCheckpoint = headerSize + 4*bufferSize + cellSize*maxSlots + 4
	// maxStride bounds how far the buffer is thinned: a slot of a day at a step of a second.
	maxStride = 1 << 12
)

// ErrCheckpoint means that a checkpoint cannot be used: it is cut short, of another version, damaged or inconsistent.
var ErrCheckpoint = errors.New("unusable checkpoint of a forecast model")

// MarshalBinary implements encoding.BinaryMarshaler. The result has at most MaxCheckpoint bytes.
func (m *Model) MarshalBinary() ([]byte, error) {
	out := make([]byte, 0, headerSize+8+4*len(m.buffer)+cellSize*m.recent.count)
	out = append(out, checkpointMagic...)
	out = append(out, checkpointVersion)
	order := binary.LittleEndian

	started := uint64(0)
	if m.started {
		started = 1
	}

	for _, v := range []uint64{
		uint64(m.step), uint64(m.last), uint64(m.stride), uint64(m.skipped), started,
		math.Float64bits(m.scale),
	} {
		out = order.AppendUint64(out, v)
	}

	// The counts give the size of what follows.
	out = order.AppendUint16(out, uint16(m.recent.count))

	out = order.AppendUint16(out, uint16(len(m.buffer)))
	for _, v := range m.buffer {
		out = order.AppendUint32(out, math.Float32bits(v))
	}

	for i := m.recent.end - int64(m.recent.count); i < m.recent.end; i++ {
		c := m.recent.at(i)
		out = order.AppendUint32(out, math.Float32bits(c.top))
		for _, share := range c.parts {
			out = order.AppendUint16(out, share)
		}
	}

	return checksum.Append(out, 0), nil
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. It accepts only what MarshalBinary of a sane model writes;
// errors wrap ErrCheckpoint and leave the model as it was.
func (m *Model) UnmarshalBinary(data []byte) error {
	decoded, err := decode(data)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}

	*m = *decoded
	return nil
}

func decode(data []byte) (*Model, error) {
	switch {
	case len(data) < headerSize+4 || len(data) > MaxCheckpoint:
		return nil, fmt.Errorf("%d bytes are not within %d and %d", len(data), headerSize+4, MaxCheckpoint)
	case string(data[:3]) != checkpointMagic:
		return nil, errors.New("it has another format")
	case data[3] != checkpointVersion:
		return nil, fmt.Errorf("version %d is not %d", data[3], checkpointVersion)
	}

	body, err := checksum.Trim(data)
	if err != nil {
		return nil, err
	}

	// A checkpoint with a valid checksum may still come from a faulty writer, so every value is checked.
	r := &reader{data: body[4:]}

	step := time.Duration(r.uint64())
	if step < forecast.MinStep || step > forecast.MaxStep {
		return nil, fmt.Errorf("step %s is out of range", step)
	}

	m := NewModel(step)
	m.last = int64(r.uint64())
	m.stride = int64(r.uint64())
	m.skipped = int64(r.uint64())

	started := r.uint64()
	if started > 1 {
		return nil, errors.New("the state is neither started nor not")
	}

	m.started = started == 1
	m.scale = math.Float64frombits(r.uint64())
	m.recent.count = int(r.uint16())
	if err := m.readAtoms(r); err != nil {
		return nil, err
	}

	return m, m.check()
}

// readAtoms reads the buffer and the slots.
func (m *Model) readAtoms(r *reader) error {
	length := int(r.uint16())
	if length > bufferSize || m.recent.count > m.layout.capacity() {
		return fmt.Errorf("%d buffered samples and %d slots are too many", length, m.recent.count)
	}

	if want := 4*length + cellSize*m.recent.count; len(r.data) != want {
		return fmt.Errorf("%d bytes of samples are not %d", len(r.data), want)
	}

	m.buffer = make([]float32, length, bufferSize)
	for i := range m.buffer {
		m.buffer[i] = r.float32()
		if !forecast.Usable(float64(m.buffer[i])) {
			return errors.New("a buffered sample is out of range")
		}
	}

	return m.recent.read(r, m.layout.capacity(), floorDiv(m.last, m.layout.seconds()))
}

// read reads the cells of a ring, whose count is known, up to an end.
func (r *ring) read(source *reader, capacity int, end int64) error {
	count := r.count
	r.restart(end - int64(count))

	for range count {
		c := cell{top: source.float32()}
		for i := range c.parts {
			c.parts[i] = source.uint16()
		}

		if !c.valid() {
			return errors.New("a slot is out of range")
		}

		r.push(c, capacity)
	}

	return nil
}

// valid reports whether a cell is empty or has values that samples can have.
func (c cell) valid() bool {
	if c.empty() || c.parts[median] == absent {
		return c.empty() && c.parts == emptyCell().parts
	}

	return forecast.Usable(float64(c.top)) && c.parts[median] <= c.parts[high] && c.parts[high] <= wholeShare
}

// check returns an error if a decoded model is inconsistent, and otherwise completes it.
func (m *Model) check() error {
	// farthest is the last accepted time: later ones overflow time.Duration from the epoch.
	const farthest = math.MaxInt64 / int64(time.Second) / 2
	switch {
	case !(m.scale >= 0 && m.scale <= forecast.MaxValue):
		return errors.New("the scale is out of range")
	case !m.started && (m.scale > 0 || m.recent.count > 0 || len(m.buffer) > 0 || m.last != 0):
		return errors.New("it holds samples that were never seen")
	case m.last > farthest || m.last < -farthest:
		return fmt.Errorf("time %d is out of range", m.last)
	case m.stride < 1 || m.stride > maxStride || m.stride&(m.stride-1) != 0 || m.skipped < 0 || m.skipped > 1<<32:
		return errors.New("the state of thinning is out of range")
	}

	if m.started {
		m.enter(floorDiv(m.last, m.layout.seconds()))
	}

	return nil
}

// reader reads fields in order; it returns zeros at the end, which the checks refuse.
type reader struct{ data []byte }

func (r *reader) take(n int) []byte {
	if len(r.data) < n {
		r.data = nil
		return make([]byte, 8)
	}

	out := r.data[:n]
	r.data = r.data[n:]
	return out
}

func (r *reader) uint16() uint16 { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }
func (r *reader) float32() float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(r.take(4)))
}
