// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package testprogram

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
)

// memoryReport is the report of hogMemory.
type memoryReport struct {
	// MiB is the allocated and written memory in MiB.
	MiB int `json:"mib"`
}

// afterPoll is the interval between checks of the start file.
const afterPoll = 50 * time.Millisecond

// hogMemory allocates memory step by step, writes to each page, and keeps it.
func hogMemory(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("memory-hog", flag.ContinueOnError)
	size := flags.Int("mib", 128, "memory to allocate in MiB")
	step := flags.Int("step", 8, "memory to allocate per step in MiB")
	pause := flags.Duration("pause", 20*time.Millisecond, "time between two steps")
	after := flags.String("after", "", "file; start when it has content")
	file := flags.String("file", "", "file to write, to allocate page cache instead of anonymous memory")

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

	memory := &allocator{}
	if *file != "" {
		f, err := os.Create(*file)
		if err != nil {
			return err
		}
		defer f.Close()

		memory.file = f
	}

	for allocated := 0; allocated < *size; {
		n := min(*step, *size-allocated)
		if err := memory.block(n << 20); err != nil {
			return err
		}

		allocated += n
		if err := writeReport(out, memoryReport{MiB: allocated}); err != nil {
			return err
		}

		select {
		case <-done:
			return nil
		case <-time.After(*pause):
		}
	}

	<-done
	runtime.KeepAlive(memory) // keep the blocks allocated until here
	return nil
}

// allocator allocates anonymous memory or page cache of a file.
type allocator struct {
	file   *os.File
	blocks [][]byte
}

// block allocates that many bytes.
func (a *allocator) block(bytes int) error {
	block := make([]byte, bytes)
	if a.file != nil {
		_, err := a.file.Write(block)
		// Only written-back pages can be dropped.
		return errors.Join(err, a.file.Sync())
	}

	for i := 0; i < len(block); i += os.Getpagesize() {
		block[i] = 1
	}

	a.blocks = append(a.blocks, block)
	return nil
}
