// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// stateVersion is the first byte of a state.
const stateVersion = 3

// accountCount is the number of accounts in a state: the HPA alone, the levels in use, and each level.
const accountCount = 2 + levelCount

// stateSize is the size of a state in bytes: the version, two times, and two numbers for each account.
const stateSize = 1 + 2*8 + accountCount*2*4

// ErrInvalidState means that a state cannot be decoded.
var ErrInvalidState = errors.New("unusable state of a ledger")

// maxUnixSeconds bounds the times in a state, which tenants may write, to the year 2242: as nanoseconds they fit into a time.Duration.
const maxUnixSeconds = 1 << 33

// MarshalBinary encodes the accounts in some hundred bytes. The requests of the last minutes are not included: a restored ledger
// accounts nothing until it has observed as much again.
func (l *Ledger) MarshalBinary() ([]byte, error) {
	out := make([]byte, 0, stateSize)
	out = append(out, stateVersion)
	out = binary.LittleEndian.AppendUint64(out, uint64(max(0, l.lastSample.Unix())))
	out = binary.LittleEndian.AppendUint64(out, uint64(l.observed/time.Second))
	for _, a := range append([]scalingCost{l.reactive, l.actual}, l.levels[:]...) {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(a.replicaSeconds)))
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(a.shortageSeconds)))
	}

	return out, nil
}

// UnmarshalBinary restores a state. The error wraps ErrInvalidState and leaves the ledger unchanged.
func (l *Ledger) UnmarshalBinary(data []byte) error {
	if len(data) != stateSize || data[0] != stateVersion {
		return fmt.Errorf("%w: %d bytes", ErrInvalidState, len(data))
	}

	last := binary.LittleEndian.Uint64(data[1:])
	seen := binary.LittleEndian.Uint64(data[9:])
	if last > maxUnixSeconds || seen > last {
		return fmt.Errorf("%w: %d s seen until %d", ErrInvalidState, seen, last)
	}

	var accounts [accountCount]scalingCost
	for i := range accounts {
		at := data[17+8*i:]
		a := scalingCost{
			replicaSeconds: float64(math.Float32frombits(binary.LittleEndian.Uint32(at))), shortageSeconds: float64(math.Float32frombits(binary.LittleEndian.Uint32(at[4:]))),
		}
		if !(a.replicaSeconds >= 0 && a.shortageSeconds >= 0) || math.IsInf(a.replicaSeconds, 0) || math.IsInf(a.shortageSeconds, 0) {
			return fmt.Errorf("%w: account %d has %v replica-seconds and %v s under capacity", ErrInvalidState, i, a.replicaSeconds, a.shortageSeconds)
		}

		accounts[i] = a
	}

	// The ledger changes only now that the whole state is known to be valid.
	l.lastSample = time.Time{}

	l.observed = time.Duration(seen) * time.Second
	l.requests = nil
	if last > 0 {
		l.lastSample = time.Unix(int64(last), 0).UTC()
	}

	l.reactive = accounts[0]
	l.actual = accounts[1]
	l.inUse = -1
	copy(l.levels[:], accounts[2:])

	return nil
}
