// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// memoryReport is what hogMemory says.
type memoryReport struct {
	// MiB that are allocated and have been written to.
	MiB int `json:"mib"`
}

// afterPoll is how often a hog looks whether it shall begin.
const afterPoll = 50 * time.Millisecond

// hogMemory takes memory step by step, writes to each page of it, and holds it.
func hogMemory(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("memory-hog", flag.ContinueOnError)
	size := flags.Int("mib", 128, "memory to take, in MiB")
	step := flags.Int("step", 8, "memory to take at a time, in MiB")
	pause := flags.Duration("pause", 20*time.Millisecond, "time between two steps")
	after := flags.String("after", "", "take nothing before this file has content")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *size < 1 || *step < 1 || *pause < 0 {
		return fmt.Errorf("memory-hog: %d MiB by %d MiB: want both above zero", *size, *step)
	}
	done := terminated()
	for *after != "" {
		if info, err := os.Stat(*after); err == nil && info.Size() > 0 {
			break
		}
		select {
		case <-done:
			return nil
		case <-time.After(afterPoll):
		}
	}
	var held [][]byte
	for have := 0; have < *size; {
		n := min(*step, *size-have)
		block := make([]byte, n<<20)
		for i := 0; i < len(block); i += os.Getpagesize() {
			block[i] = 1
		}
		held = append(held, block)
		have += n
		if err := say(out, memoryReport{MiB: have}); err != nil {
			return err
		}
		select {
		case <-done:
			return nil
		case <-time.After(*pause):
		}
	}
	<-done
	// The blocks are in use until here.
	held[0][0] = 2
	return nil
}
