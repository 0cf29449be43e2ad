// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testprogram contains the programs of the test images: small programs that use a known amount of a resource
// and report their share as JSON lines.
package testprogram

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// Names returns the names of the programs, which are also the names of the images.
func Names() []string {
	return []string{"pause", "cpu-hog", "memory-hog", "latency-server", "latency-client", "cgroups"}
}

// Run runs the program of that name.
func Run(name string, args []string) error {
	switch name {
	case "pause":
		return pause()
	case "cpu-hog":
		return hogCPU(args, os.Stdout)
	case "memory-hog":
		return hogMemory(args, os.Stdout)

	case "latency-server":
		return serveLatency(args, os.Stdout)
	case "latency-client":
		return measureLatency(args, os.Stdout)
	case "cgroups":
		return cgroups(args, os.Stdout)
	}

	return fmt.Errorf("unknown program %q, want one of %s", name, strings.Join(Names(), ", "))
}

// pause keeps a sandbox's namespaces: as their first process it reaps orphans, and exits on SIGTERM.
func pause() error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)

	for s := range signals {
		if s != syscall.SIGCHLD {
			return nil
		}

		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
	}

	return nil
}

// terminated returns a channel that is closed on SIGTERM or SIGINT.
func terminated() <-chan struct{} {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	go func() {
		<-signals
		close(done)
	}()

	return done
}

// writeReport writes v as one line of JSON.
func writeReport(out io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}

	_, err = out.Write(append(line, '\n'))
	return err
}

// percentile returns the smallest value that is not exceeded by at least a share p (0 to 1) of the values, 0 for none.
// It sorts values.
func percentile[T int64 | float64](values []T, p float64) T {
	if len(values) == 0 {
		return 0
	}

	slices.Sort(values)
	rank := int(p * float64(len(values)))
	return values[min(rank, len(values)-1)]
}
