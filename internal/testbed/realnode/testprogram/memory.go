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
	file := flags.String("file", "", "take it as cache of this file, which is written, instead of memory of the process")
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
	take := &taker{}
	if *file != "" {
		f, err := os.Create(*file)
		if err != nil {
			return err
		}
		defer f.Close()
		take.file = f
	}
	for have := 0; have < *size; {
		n := min(*step, *size-have)
		if err := take.block(n << 20); err != nil {
			return err
		}
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
	runtime.KeepAlive(take) // The blocks are in use until here.
	return nil
}

// taker takes memory, of the process or as cache of a file.
type taker struct {
	file *os.File
	held [][]byte
}

// block takes that many bytes.
func (t *taker) block(bytes int) error {
	block := make([]byte, bytes)
	if t.file != nil {
		_, err := t.file.Write(block)
		// What is not on the disk yet cannot be dropped.
		return errors.Join(err, t.file.Sync())
	}
	for i := 0; i < len(block); i += os.Getpagesize() {
		block[i] = 1
	}
	t.held = append(t.held, block)
	return nil
}
