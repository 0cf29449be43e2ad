// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package testprogram

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// cpuReport is the report of hogCPU.
type cpuReport struct {
	// Cores is the CPU time divided by the time since the last report.
	Cores float64 `json:"cores"`
	// Allowed is the number of CPUs this process may run on.
	Allowed int `json:"allowed"`
}

// hogCPU keeps threads busy and reports its CPU time each second.
func hogCPU(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cpu-hog", flag.ContinueOnError)
	threads := flags.Int("threads", runtime.NumCPU(), "busy threads")
	every := flags.Duration("every", time.Second, "time between reports")
	control := flags.String("switch", "", "file; be busy only while its content starts with 1 (default: always)")

	if err := flags.Parse(args); err != nil {
		return err
	}

	if *threads < 1 || *every <= 0 {
		return fmt.Errorf("cpu-hog: %d threads reporting every %s: want both above zero", *threads, *every)
	}

	// One more thread for the reports.
	runtime.GOMAXPROCS(*threads + 1)
	h := hog{threads: *threads}
	defer h.stop()

	done := terminated()
	ticker := time.NewTicker(*every)
	defer ticker.Stop()

	var poll <-chan time.Time
	if *control != "" {
		ticker := time.NewTicker(switchPoll)
		defer ticker.Stop()

		poll = ticker.C
	}

	// Reports measure what the kernel granted, not what was demanded.
	used := cpuTime()

	begin := time.Now()
	for {
		h.set(*control == "" || switchedOn(*control))
		select {
		case <-done:
			return nil
		case <-poll:
			continue
		case <-ticker.C:
		}

		u := cpuTime()
		t := time.Now()
		report := cpuReport{Cores: (u - used).Seconds() / t.Sub(begin).Seconds(), Allowed: allowedCPUs()}

		if err := writeReport(out, report); err != nil {
			return err
		}

		used = u
		begin = t
	}
}

// switchPoll is the interval between reads of the switch.
const switchPoll = 50 * time.Millisecond

// switchedOn reports whether the switch file starts with 1. A missing file is off.
func switchedOn(file string) bool {
	content, err := os.ReadFile(file)
	return err == nil && bytes.HasPrefix(content, []byte("1"))
}

// hog manages the busy threads.
type hog struct {
	threads int
	end     *atomic.Bool // nil while nothing is busy
	busy    sync.WaitGroup
}

func (h *hog) set(on bool) {
	switch {
	case !on:
		h.stop()

	case h.end == nil:
		end := &atomic.Bool{}
		h.end = end
		for range h.threads {
			h.busy.Go(func() {
				for n := 1; !end.Load(); n++ {
					_ = n * n
				}
			})
		}
	}
}

func (h *hog) stop() {
	if h.end != nil {
		h.end.Store(true)
		h.busy.Wait()
		h.end = nil
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}

	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
