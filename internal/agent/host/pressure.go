// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// Stall is a line of a pressure file (Documentation/accounting/psi.rst): the share of time in which tasks waited.
type Stall struct {
	// Avg10 and Avg60 are averages over 10 and 60 seconds in percent, from 0 to 100.
	Avg10, Avg60 float64
	// Total is the stall time since boot.
	Total time.Duration
}

// Pressure holds the content of a pressure file.
type Pressure struct {
	// Some counts time in which at least one task waited, Full time in which all did. Kernels before 5.13 have no Full for CPU.
	Some, Full Stall
}

const maxPercent = 100

// ParsePressure parses cpu.pressure, memory.pressure, io.pressure or a file of /proc/pressure.
func ParsePressure(content []byte) (Pressure, error) {
	var p Pressure
	some := false
	err := Lines(content, func(line []byte) error {
		kind, rest := Field(line)
		switch string(kind) {
		case "some":
			some = true
			return parseStall(rest, &p.Some)
		case "full":
			return parseStall(rest, &p.Full)
		}

		return nil // reserved for newer kernels
	})

	if err == nil && !some {
		err = errors.New("no line \"some\"")
	}

	if err != nil {
		return Pressure{}, fmt.Errorf("pressure: %w", err)
	}

	return p, nil
}

func parseStall(line []byte, s *Stall) error {
	seen := 0
	for {
		var field []byte
		if field, line = Field(line); len(field) == 0 {
			break
		}

		key, value, _ := bytes.Cut(field, []byte("="))
		var err error
		switch string(key) {
		case "avg10":
			s.Avg10, err = parsePercent(value)
			seen++
		case "avg60":
			s.Avg60, err = parsePercent(value)
			seen++

		case "total":
			var n uint64
			n, err = Uint(value)
			s.Total = time.Duration(min(n, uint64(1<<62)/uint64(time.Microsecond))) * time.Microsecond
			seen++
		}

		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}

	if seen != 3 {
		return errors.New("requires avg10, avg60 and total")
	}

	return nil
}

func parsePercent(text []byte) (float64, error) {
	v, err := parseDecimal(text)
	// The kernel's fixed-point averages may round to slightly more than 100.
	if err == nil && v > maxPercent+1 {
		err = fmt.Errorf("%s is more than 100 percent", text)
	}

	return min(v, maxPercent), err
}
