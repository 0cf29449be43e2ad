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

// cpuReport is what hogCPU says.
type cpuReport struct {
	// Cores is CPU time over time since the last report.
	Cores float64 `json:"cores"`
	// Allowed is the number of CPUs this process may run on.
	Allowed int `json:"allowed"`
}

// hogCPU keeps threads busy and says each second how much CPU time it got.
func hogCPU(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cpu-hog", flag.ContinueOnError)
	threads := flags.Int("threads", runtime.NumCPU(), "busy threads")
	every := flags.Duration("every", time.Second, "time between reports")
	control := flags.String("switch", "", "be busy only while this file begins with 1; without it, always")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *threads < 1 || *every <= 0 {
		return fmt.Errorf("cpu-hog: %d threads reporting every %s: want both above zero", *threads, *every)
	}
	runtime.GOMAXPROCS(*threads + 1)
	h := hog{threads: *threads}
	defer h.stop()
	done := terminated()
	ticker := time.NewTicker(*every)
	defer ticker.Stop()
	var look <-chan time.Time
	if *control != "" {
		poll := time.NewTicker(switchPoll)
		defer poll.Stop()
		look = poll.C
	}
	used, begin := cpuTime(), time.Now()
	for {
		h.set(*control == "" || switchedOn(*control))
		select {
		case <-done:
			return nil
		case <-look:
			continue
		case <-ticker.C:
		}
		u, t := cpuTime(), time.Now()
		report := cpuReport{Cores: (u - used).Seconds() / t.Sub(begin).Seconds(), Allowed: allowedCPUs()}
		if err := say(out, report); err != nil {
			return err
		}
		used, begin = u, t
	}
}

// switchPoll is how often a hog looks whether it is to be busy.
const switchPoll = 50 * time.Millisecond

// switchedOn reads a hog's switch. One that is not there is off.
func switchedOn(file string) bool {
	content, err := os.ReadFile(file)
	return err == nil && bytes.HasPrefix(content, []byte("1"))
}

// hog is the busy threads, if any.
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

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
