// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"errors"
	"strconv"
)

// parseValue parses a sample value. A number too large for a float64 is infinite, as in Prometheus.
func parseValue(text []byte) (float64, error) {
	v, err := strconv.ParseFloat(string(text), 64)
	if errors.Is(err, strconv.ErrRange) {
		return v, nil
	}

	return v, err
}

// fastPair reads a pair as Prometheus writes it, [1700000000.123,"0.25"], if the buffer holds all of it; otherwise it consumes nothing.
func (s *scanner) fastPair() (point, bool) {
	b := s.buf[s.pos:s.end]
	ms, i, ok := fastTime(b)
	if !ok || i+1 >= len(b) || b[i] != ',' || b[i+1] != '"' {
		return point{}, false
	}

	i += 2
	n := bytes.IndexByte(b[i:], '"')
	if n < 0 || i+n+1 >= len(b) || b[i+n+1] != ']' {
		return point{}, false
	}

	v, err := parseValue(b[i : i+n]) // Fails on an escape.
	if err != nil {
		return point{}, false
	}

	s.pos += i + n + 2
	return point{ms: ms, value: v}, true
}

// fastTime reads "[" and a time in seconds with at most three decimals; next is the index after it.
func fastTime(b []byte) (ms int64, next int, ok bool) {
	const longest = 1 + 14 // Cannot overflow, whatever the digits.
	if len(b) < 4 || b[0] != '[' || b[1] < '1' || b[1] > '9' {
		return 0, 0, false
	}

	i := 1
	for ; i < min(len(b), longest) && b[i] >= '0' && b[i] <= '9'; i++ {
		ms = ms*10 + int64(b[i]-'0')
	}

	decimals := 0
	if i < len(b) && b[i] == '.' {
		for i++; i < len(b) && decimals < 3 && b[i] >= '0' && b[i] <= '9'; i++ {
			ms = ms*10 + int64(b[i]-'0')
			decimals++
		}

		if decimals == 0 {
			return 0, 0, false
		}
	}

	for ; decimals < 3; decimals++ {
		ms *= 10
	}

	return ms, i, true
}
