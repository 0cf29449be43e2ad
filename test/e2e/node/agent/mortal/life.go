// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/series"
)

// life is what a process does that acts on a container and is killed in between.
type life struct {
	// Root is the node's, Journal the file, Group the container's.
	Root, Journal, Group string
	// Memory has it change limits of memory instead of those of cpu.
	Memory bool
	// Writes is how many writes to files of the kernel it lives for; After that it dies after one more, else before.
	Writes int
	After  bool
}

// files are the kernel's, written by a process that is killed with SIGKILL at one of them. It says which before.
type files struct {
	act.KernelFiles
	left  *int
	after bool
}

func (f files) Write(file, value string) error {
	die := *f.left == 0
	*f.left--
	if die {
		fmt.Print(filepath.Base(file))
	}
	if die && !f.after {
		kill()
	}
	err := f.KernelFiles.Write(file, value)
	if die {
		kill()
	}
	return err
}

func kill() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// live lives the life that a text describes, unless it ends before.
func live(text string) error {
	var l life
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return fmt.Errorf("life: %w", err)
	}
	kernel := files{left: &l.Writes, after: l.After}
	layout, journal, err := l.open(kernel)
	if err != nil {
		return err
	}
	if l.Memory {
		return l.changeMemory(layout, journal, kernel)
	}
	return l.changeCPU(layout, journal)
}

// open opens the journal as an agent at its start.
func (l life) open(to act.Files) (cgroup.Layout, *act.Journal, error) {
	layout, err := cgroup.Detect(host.Root(l.Root))
	if err != nil {
		return layout, nil, fmt.Errorf("look at cgroups: %w", err)
	}
	journal, err := act.OpenJournal(l.Journal, layout, to)
	if err != nil {
		return layout, nil, fmt.Errorf("start: %w", err)
	}
	return layout, journal, nil
}

func pod() qos.PodRef { return qos.PodRef{Namespace: "default", Name: "mortal"} }

// changeCPU throttles the container twice, with its pod's quota and weight, and gives back a step and then the rest.
func (l life) changeCPU(layout cgroup.Layout, journal *act.Journal) error {
	const most, half = 400, 0.5 // most is the container's limit, in thousandths of a core.
	throttler := act.NewThrottler(layout, journal)
	for _, step := range []struct {
		to     qos.Quota
		weight series.Ratio
	}{{300, half}, {100, half / 2}, {200, half}, {most, 1}} {
		plan := qos.Throttle{ContainerID: filepath.Base(l.Group), Pod: pod(), To: step.to, Original: most, Weight: step.weight}
		if err := throttler.Throttle(plan, l.Group); err != nil {
			return fmt.Errorf("throttle: %w", err)
		}
	}
	return nil
}

// changeMemory has files dropped and the limit fall, gives all back, takes some again, gives a part back, and ends in order.
func (l life) changeMemory(layout cgroup.Layout, journal *act.Journal, kernel act.Files) error {
	before, err := original(layout, l.Group)
	if err != nil {
		return err
	}
	throttler := act.NewMemoryThrottler(act.MemoryConfig{
		Layout: layout, Journal: journal, Files: kernel, Clock: clock.RealClock{}, Beat: func(string) {},
	})
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- throttler.Run(ctx) }()
	const mebi = 1 << 20
	var errs []error
	for _, step := range []struct {
		to    qos.High
		frees series.Bytes
	}{{60 * mebi, 4 * mebi}, {before, -1}, {50 * mebi, 4 * mebi}, {56 * mebi, -1}} {
		errs = append(errs, do(throttler, qos.MemoryThrottle{
			ContainerID: filepath.Base(l.Group), Pod: pod(), To: step.to, Original: before, Frees: step.frees,
		}, l.Group))
	}
	end()
	return errors.Join(append(errs, <-done)...)
}

// original is a container's limit of memory as it is now.
func original(layout cgroup.Layout, group string) (qos.High, error) {
	path, err := layout.Setting(group, cgroup.FileHigh)
	if err != nil {
		return 0, fmt.Errorf("limit of memory: %w", err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("limit of memory: %w", err)
	}
	text := strings.TrimSpace(string(content))
	if text == "max" {
		return qos.NoHigh, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("limit of memory: %w", err)
	}
	return qos.High(n), nil
}

// do asks for a change and waits for its outcome.
func do(throttler *act.MemoryThrottler, t qos.MemoryThrottle, group string) error {
	if !throttler.Ask(t, group) {
		return errors.New("a change of memory is not taken")
	}
	for {
		if out := throttler.Drain(); len(out) > 0 {
			return out[0].Err
		}
		<-time.After(time.Millisecond)
	}
}
