// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math"
	"strings"
)

// FormatValue formats a metric value with its unit, large numbers of bytes as MiB.
func FormatValue(v float64, unit string) string {
	const mib = 1 << 20
	if rest, ok := strings.CutPrefix(unit, "bytes"); ok && math.Abs(v) >= mib {
		return fmt.Sprintf("%.1f MiB%s", v/mib, rest)
	}
	return strings.TrimSpace(fmt.Sprintf("%.4g %s", v, unit))
}
