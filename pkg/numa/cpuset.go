// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// MaxCPU is the largest CPU number; Linux supports at most 8192 CPUs.
const MaxCPU = 8191

// CPUSet is an immutable set of CPU numbers. The zero value is empty.
type CPUSet struct {
	words string // 64 CPUs in 8 bytes, no trailing zero words, so that equal sets are equal values
}

// NewCPUSet returns the set of the given CPUs. Numbers below 0 or above MaxCPU are ignored.
func NewCPUSet(cpus ...int) CPUSet {
	var words []uint64
	for _, c := range cpus {
		if c < 0 || c > MaxCPU {
			continue
		}

		for len(words) <= c/64 {
			words = append(words, 0)
		}
		words[c/64] |= 1 << (c % 64)
	}

	return pack(words)
}

func pack(words []uint64) CPUSet {
	for len(words) > 0 && words[len(words)-1] == 0 {
		words = words[:len(words)-1]
	}

	b := make([]byte, 0, 8*len(words))
	for _, w := range words {
		b = append(b, byte(w), byte(w>>8), byte(w>>16), byte(w>>24), byte(w>>32), byte(w>>40), byte(w>>48), byte(w>>56))
	}

	return CPUSet{words: string(b)}
}

func (s CPUSet) word(i int) uint64 {
	if 8*i >= len(s.words) {
		return 0
	}

	b := s.words[8*i:]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

func (s CPUSet) combine(o CPUSet, op func(a, b uint64) uint64) CPUSet {
	words := make([]uint64, max(len(s.words), len(o.words))/8)
	for i := range words {
		words[i] = op(s.word(i), o.word(i))
	}

	return pack(words)
}

// Union returns the CPUs of either set.
func (s CPUSet) Union(o CPUSet) CPUSet {
	return s.combine(o, func(a, b uint64) uint64 { return a | b })
}

// Intersection returns the CPUs of both sets.
func (s CPUSet) Intersection(o CPUSet) CPUSet {
	return s.combine(o, func(a, b uint64) uint64 { return a & b })
}

// Difference returns the CPUs of s that are not in o.
func (s CPUSet) Difference(o CPUSet) CPUSet {
	return s.combine(o, func(a, b uint64) uint64 { return a &^ b })
}

// Len returns the number of CPUs.
func (s CPUSet) Len() (n int) {
	for i := range len(s.words) / 8 {
		n += bits.OnesCount64(s.word(i))
	}

	return n
}

// Contains reports whether CPU c is in s.
func (s CPUSet) Contains(c int) bool { return c >= 0 && c <= MaxCPU && s.word(c/64)>>(c%64)&1 == 1 }

// All returns the CPUs in ascending order.
func (s CPUSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range len(s.words) / 8 {
			for w := s.word(i); w != 0; w &= w - 1 {
				if !yield(64*i + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// String formats s as in cpuset.cpus, such as 0-3,8.
func (s CPUSet) String() string {
	var b strings.Builder
	cpus := slices.Collect(s.All())
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}

		if i > 0 {
			b.WriteByte(',')
		}

		b.WriteString(strconv.Itoa(cpus[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(cpus[j]))
		}

		i = j + 1
	}

	return b.String()
}

// ParseCPUSet parses comma-separated numbers and ranges in any order, with optional blanks. The error contains the invalid part.
func ParseCPUSet(list string) (CPUSet, error) {
	list = strings.TrimSpace(list)
	if list == "" {
		return CPUSet{}, nil
	}

	// Bits instead of a list, since ranges may be long and may overlap.
	words := make([]uint64, MaxCPU/64+1)
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := parseCPU(first)
		if err != nil {
			return CPUSet{}, fmt.Errorf("CPU list: %q: %w", part, err)
		}

		to := from
		if isRange {
			to, err = parseCPU(last)
			if err != nil {
				return CPUSet{}, fmt.Errorf("CPU list: %q: %w", part, err)
			}
		}

		if to < from {
			return CPUSet{}, fmt.Errorf("CPU list: %q is descending", part)
		}

		for c := from; c <= to; c++ {
			words[c/64] |= 1 << (c % 64)
		}
	}

	return pack(words), nil
}

func parseCPU(s string) (int, error) {
	c, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a CPU number", s)
	}

	if c > MaxCPU {
		return 0, fmt.Errorf("CPU %d is not at most %d", c, MaxCPU)
	}

	return int(c), nil
}
