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

// stateVersion begins the state of a ledger; another one is not read.
const stateVersion = 1

// stateSize is the size of a state in bytes: the version, two times, and two numbers of each account.
const stateSize = 1 + 2*8 + (1+numLevels)*2*4

// ErrState means that a state is none of a Ledger.
var ErrState = errors.New("unusable state of a ledger")

// farthest bounds the times of a state; nobody's clock shows more.
const farthest = 1 << 37

// MarshalBinary returns the accounts in some hundred bytes. What the HPA and the levels asked for in the last minutes is no part
// of it: a ledger that goes on from a state books nothing until it has seen as much again.
func (l *Ledger) MarshalBinary() ([]byte, error) {
	out := make([]byte, 0, stateSize)
	out = append(out, stateVersion)
	out = binary.LittleEndian.AppendUint64(out, uint64(max(0, l.last.Unix())))
	out = binary.LittleEndian.AppendUint64(out, uint64(l.seen/time.Second))
	for _, a := range append([]account{l.reactive}, l.ahead[:]...) {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(a.replicas)))
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(a.short)))
	}
	return out, nil
}

// UnmarshalBinary goes on from a state. The error wraps ErrState and leaves the ledger as it was.
func (l *Ledger) UnmarshalBinary(data []byte) error {
	if len(data) != stateSize || data[0] != stateVersion {
		return fmt.Errorf("%w: %d bytes", ErrState, len(data))
	}
	last, seen := binary.LittleEndian.Uint64(data[1:]), binary.LittleEndian.Uint64(data[9:])
	if last > farthest || seen > last {
		return fmt.Errorf("%w: %d s seen until %d", ErrState, seen, last)
	}
	var accounts [1 + numLevels]account
	for i := range accounts {
		at := data[17+8*i:]
		a := account{
			replicas: float64(math.Float32frombits(binary.LittleEndian.Uint32(at))), short: float64(math.Float32frombits(binary.LittleEndian.Uint32(at[4:]))),
		}
		if !(a.replicas >= 0 && a.short >= 0) || math.IsInf(a.replicas, 0) || math.IsInf(a.short, 0) {
			return fmt.Errorf("%w: account %d has %v replica-seconds and %v s under capacity", ErrState, i, a.replicas, a.short)
		}
		accounts[i] = a
	}
	l.last, l.seen, l.asked = time.Time{}, time.Duration(seen)*time.Second, nil
	if last > 0 {
		l.last = time.Unix(int64(last), 0).UTC()
	}
	l.reactive = accounts[0]
	copy(l.ahead[:], accounts[1:])
	return nil
}
