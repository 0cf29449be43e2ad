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

// maxAmount bounds amounts, so that no sum of some of them overflows: 1.1e15 cores or 1 EiB.
const maxAmount = math.MaxInt64 / 8

// ParseCores makes an amount of cores, rounded up to the thousandth. The error says that the number is no amount.
func ParseCores(v float64) (series.MilliCPU, error) {
	m, err := parseAmount(v * 1000)
	if err != nil {
		return 0, fmt.Errorf("%v cores %w", v, err)
	}
	return series.MilliCPU(m), nil
}

// ParseBytes makes an amount of bytes, rounded up to whole ones. The error says that the number is no amount.
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
		return 0, amountError("are no amount")
	}
	return roundUp(v), nil
}

// roundUp rounds up to whole ones, but for what floating point adds.
func roundUp(v float64) int64 { return int64(math.Ceil(v - 1e-6)) }

// fraction is a part of an amount, rounded up.
func fraction[T Amount](of T, r series.Ratio) T { return T(roundUp(float64(of) * float64(r))) }

// roundDown rounds down to whole units, and to 0 what is less than nothing.
func roundDown[T Amount](v, unit T) T { return max(v, 0) / unit * unit }

// roundUpUnits rounds up to whole units.
func roundUpUnits[T Amount](v, unit T) T { return roundDown(v+unit-1, unit) }

// AllocatedShare is the share of an offer that pods hold, from 0 on; 1 is all of it. Above that it is 1 and the deficit as a share of the offer, or of
// one unit where that is less: who holds any of an offer of nothing is above 1 as well.
func AllocatedShare[T Amount](held, offer, unit T) series.Ratio {
	held, offer = max(held, 0), max(offer, 0)
	of := float64(max(offer, unit, 1))
	if held > offer {
		return series.Ratio(1 + float64(held-offer)/of)
	}
	return series.Ratio(float64(held) / of)
}

// ParseReserve reads a share of a node, as in 40% or 40, which are the same: from 0 to 100 percent.
func ParseReserve(text string) (series.Ratio, error) {
	number := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "%"))
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || !(percent >= 0 && percent <= 100) {
		return 0, fmt.Errorf("%.40q is no percentage from 0%% to 100%%", text)
	}
	return series.Ratio(percent / 100), nil
}
