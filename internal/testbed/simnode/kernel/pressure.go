// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"math"
	"os"
	"time"
)

// pressure is the content of a PSI file (kernel/sched/psi.c): averages in percent, totals in microseconds.
type pressure struct{ some, full stall }

type stall struct {
	avg10, avg60, avg300 float64
	total                int64
}

const noPressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"

func (p pressure) String() string {
	line := func(kind string, s stall) string {
		return fmt.Sprintf("%s avg10=%.2f avg60=%.2f avg300=%.2f total=%d\n", kind, s.avg10, s.avg60, s.avg300, s.total)
	}
	return line("some", p.some) + line("full", p.full)
}

// after returns the stall time after a span in which a share, 0 to 1, was stalled: averages decay exponentially
// (calc_avgs).
func (s stall) after(share float64, span time.Duration) stall {
	share = min(max(share, 0), 1)
	mix := func(avg, over float64) float64 {
		keep := math.Exp(-span.Seconds() / over)
		return avg*keep + 100*share*(1-keep)
	}
	s.avg10, s.avg60, s.avg300 = mix(s.avg10, 10), mix(s.avg60, 60), mix(s.avg300, 300)
	s.total += int64(share * float64(span/time.Microsecond))
	return s
}

// addPressure adds a span to a PSI file.
func addPressure(file string, some, full float64, span time.Duration) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("pressure: %w", err)
	}
	var p pressure
	const line = "%s avg10=%f avg60=%f avg300=%f total=%d\n"
	var kind string
	if _, err := fmt.Sscanf(string(content), line+line,
		&kind, &p.some.avg10, &p.some.avg60, &p.some.avg300, &p.some.total, &kind, &p.full.avg10, &p.full.avg60, &p.full.avg300, &p.full.total); err != nil {
		return fmt.Errorf("pressure: %s: %w", file, err)
	}
	p.some, p.full = p.some.after(some, span), p.full.after(full, span)
	return writeFile(file, p.String())
}
