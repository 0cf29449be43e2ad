// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"crane.io/crane/pkg/series"
)

// Amount is an amount of a resource in its own unit.
type Amount interface {
	series.MilliCPU | series.Bytes
}

// maxAmount limits amounts to 1.1e15 cores or 1 EiB, so that sums do not overflow.
const maxAmount = math.MaxInt64 / 8

// ParseCores converts cores to millicores, rounded up. It returns an error for negative, infinite and too large numbers.
func ParseCores(v float64) (series.MilliCPU, error) {
	m, err := parseAmount(v * 1000)
	if err != nil {
		return 0, fmt.Errorf("%v cores %w", v, err)
	}
	return series.MilliCPU(m), nil
}

// ParseBytes converts a number of bytes, rounded up. It returns an error for negative, infinite and too large numbers.
func ParseBytes(v float64) (series.Bytes, error) {
	b, err := parseAmount(v)
	if err != nil {
		return 0, fmt.Errorf("%v bytes %w", v, err)
	}
	return series.Bytes(b), nil
}

type amountError string

func (e amountError) Error() string { return string(e) }

func parseAmount(v float64) (int64, error) {
	if !(v >= 0 && v < maxAmount) {
		return 0, amountError("are out of range")
	}
	return roundUp(v), nil
}

// roundUp rounds up, except for floating-point errors.
func roundUp(v float64) int64 { return int64(math.Ceil(v - 1e-6)) }

// fraction returns a share of an amount, rounded up.
func fraction[T Amount](of T, r series.Ratio) T { return T(roundUp(float64(of) * float64(r))) }

// roundDown rounds down to whole units; negative amounts become 0.
func roundDown[T Amount](v, unit T) T { return max(v, 0) / unit * unit }

// roundUpUnits rounds up to whole units.
func roundUpUnits[T Amount](v, unit T) T { return roundDown(v+unit-1, unit) }

// AllocatedShare returns the share of an offer that pods hold; 1 is all of it. Above the offer it is 1 plus the deficit as a share of the
// offer, or of one unit if the offer is less; any allocation of an empty offer is above 1.
func AllocatedShare[T Amount](held, offer, unit T) series.Ratio {
	held, offer = max(held, 0), max(offer, 0)
	of := float64(max(offer, unit, 1))
	if held > offer {
		return series.Ratio(1 + float64(held-offer)/of)
	}
	return series.Ratio(float64(held) / of)
}

// ParseReserve parses a share of a node from 0 to 100 percent, with or without a percent sign.
func ParseReserve(text string) (series.Ratio, error) {
	number := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "%"))
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || !(percent >= 0 && percent <= 100) {
		return 0, fmt.Errorf("%.40q is not a percentage from 0%% to 100%%", text)
	}
	return series.Ratio(percent / 100), nil
}
