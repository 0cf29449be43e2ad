// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package histogram

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"testing"
)

// TestFirstBucketOverflows checks that a checkpoint with a valid checksum whose first bucket and length overflow together is rejected.
func TestFirstBucketOverflows(t *testing.T) {
	for first, valid := range map[uint64]bool{2: true, maxBucket: false, math.MaxUint64: false, 1<<32 + 2: false} {
		out := []byte{kindCounts, codecVersion}
		out = binary.AppendUvarint(out, 1) // samples
		out = binary.AppendUvarint(out, 0) // of them zero
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(0))
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(1))
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(1))
		out = binary.AppendUvarint(out, first)
		out = binary.AppendUvarint(out, 1) // buckets
		out = binary.AppendUvarint(out, 1) // samples of the first

		out = binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
		var c Counts
		if err := c.UnmarshalBinary(out); valid != (err == nil) || !valid && !errors.Is(err, ErrCorrupt) {
			t.Errorf("UnmarshalBinary with first bucket %d: error %v, counts %+v; want valid: %t", first, err, c, valid)
		}
	}
}
