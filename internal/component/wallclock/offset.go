// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build craneclockoffset

// Package wallclock provides a clock whose time is that of the system plus an offset. It is for tests alone.
package wallclock

import (
	"os"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// OffsetFileEnv names the environment variable with the path of a file that contains the offset as a duration. A file that is missing or
// invalid is an offset of zero.
const OffsetFileEnv = "CRANE_CLOCK_OFFSET_FILE"

// New returns a clock that reads its offset from the file that OffsetFileEnv names. Timers and tickers run on, as they do when the clock of
// a system is set.
func New() clock.WithTicker { return offsetClock{path: os.Getenv(OffsetFileEnv)} }

type offsetClock struct {
	clock.RealClock
	path string
}

func (c offsetClock) Now() time.Time { return time.Now().Add(c.offset()).Round(0) } // without the monotonic reading

func (c offsetClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c offsetClock) offset() time.Duration {
	text, err := os.ReadFile(c.path)
	if err != nil {
		return 0
	}

	offset, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}

	return offset
}
