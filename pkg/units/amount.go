// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package units

import (
	"fmt"
	"strconv"
	"strings"
)

// FormatCPU formats an amount of CPU as Kubernetes does: "250m" or "2".
func FormatCPU(m MilliCPU) string {
	if m%1000 == 0 {
		return strconv.FormatInt(int64(m/1000), 10)
	}

	return strconv.FormatInt(int64(m), 10) + "m"
}

// FormatMemory formats an exact amount of memory as Kubernetes does: "256Mi", "1Gi" or plain bytes.
func FormatMemory(b Bytes) string {
	for _, unit := range []struct {
		size   Bytes
		suffix string
	}{{1 << 40, "Ti"}, {1 << 30, "Gi"}, {1 << 20, "Mi"}, {1 << 10, "Ki"}} {
		if b != 0 && b%unit.size == 0 {
			return strconv.FormatInt(int64(b/unit.size), 10) + unit.suffix
		}
	}

	return strconv.FormatInt(int64(b), 10)
}

// FormatAmount formats an amount of a resource, in millicores or bytes, as Kubernetes does.
func FormatAmount(r Resource, amount int64) string {
	if r == CPU {
		return FormatCPU(MilliCPU(amount))
	}

	return FormatMemory(Bytes(amount))
}

// FormatCores formats an amount of CPU for messages, with three digits: "1.5 cores".
func FormatCores(m MilliCPU) string { return fmt.Sprintf("%.3g cores", float64(m)/1000) }

// FormatMiB formats a number of bytes for messages, in whole mebibytes: "256 MiB".
func FormatMiB[N int64 | float64 | Bytes](bytes N) string {
	return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20))
}

// FormatPercent formats a share with one decimal: 0.5 is "50.0%".
func FormatPercent(r Ratio) string { return fmt.Sprintf("%.1f%%", 100*float64(r)) }

// FormatPercentile formats a percentile: "p99", or "the most".
func FormatPercentile(q Ratio) string {
	if q >= 1 {
		return "the most"
	}

	return fmt.Sprintf("p%.4g", 100*float64(q))
}

// FormatFirst lists the first names and the number of the others: "a, b and 3 more".
func FormatFirst(names []string, limit int) string {
	if len(names) <= limit {
		return strings.Join(names, ", ")
	}

	return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
}
