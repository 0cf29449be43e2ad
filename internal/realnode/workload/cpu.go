// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"flag"
	"fmt"
	"io"
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
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *threads < 1 || *every <= 0 {
		return fmt.Errorf("cpu-hog: %d threads reporting every %s: want both above zero", *threads, *every)
	}
	runtime.GOMAXPROCS(*threads + 1)
	var stop atomic.Bool
	var busy sync.WaitGroup
	for range *threads {
		busy.Go(func() {
			for n := 1; !stop.Load(); n++ {
				_ = n * n
			}
		})
	}
	defer busy.Wait()
	defer stop.Store(true)
	done := terminated()
	ticker := time.NewTicker(*every)
	defer ticker.Stop()
	used, begin := cpuTime(), time.Now()
	for {
		select {
		case <-done:
			return nil
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

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
