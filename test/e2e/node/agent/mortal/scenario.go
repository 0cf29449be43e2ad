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
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// scenario describes changes to a container during which the process is killed.
type scenario struct {
	// Root is the node's root, Journal the journal file, Group the container's cgroup.
	Root, Journal, Group string
	// Memory changes memory limits instead of CPU limits.
	Memory bool
	// Writes is the number of successful writes to kernel files; the process is killed after the next one if DieAfter, else before it.
	Writes   int
	DieAfter bool
}

// dyingFiles writes kernel files and kills its process at one of them, whose name it prints before.
type dyingFiles struct {
	act.KernelFileWriter
	writesLeft *int
	after      bool
}

func (f dyingFiles) Write(file, value string) error {
	die := *f.writesLeft == 0
	*f.writesLeft--

	if die {
		fmt.Print(filepath.Base(file))
	}
	if die && !f.after {
		killSelf()
	}

	err := f.KernelFileWriter.Write(file, value)
	if die {
		killSelf()
	}

	return err
}

func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// runScenario runs the encoded scenario to its end unless it kills itself.
func runScenario(text string) error {
	var l scenario
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return fmt.Errorf("encoding the scenario: %w", err)
	}

	kernel := dyingFiles{writesLeft: &l.Writes, after: l.DieAfter}
	layout, journal, err := l.openJournal(kernel)
	if err != nil {
		return err
	}

	if l.Memory {
		return l.changeMemory(layout, journal, kernel)
	}

	return l.changeCPU(layout, journal)
}

// openJournal opens the journal as a starting agent does.
func (l scenario) openJournal(to act.FileWriter) (cgroup.Layout, *act.Journal, error) {
	layout, err := cgroup.Detect(host.Root(l.Root))
	if err != nil {
		return layout, nil, fmt.Errorf("detecting cgroups: %w", err)
	}

	journal, err := act.OpenJournal(l.Journal, layout, to)
	if err != nil {
		return layout, nil, fmt.Errorf("start: %w", err)
	}

	return layout, journal, nil
}

func newPodRef() qos.PodRef { return qos.PodRef{Namespace: "default", Name: "mortal"} }

// changeCPU throttles the container twice, with its pod's quota and weight, and restores a step and then the rest.
func (l scenario) changeCPU(layout cgroup.Layout, journal *act.Journal) error {
	const limit, half = 400, 0.5 // limit is the container's, in millicores.
	throttler := act.NewThrottler(layout, journal)
	for _, step := range []struct {
		to     qos.Quota
		weight units.Ratio
	}{{300, half}, {100, half / 2}, {200, half}, {limit, 1}} {
		plan := qos.Throttle{
			ContainerID: filepath.Base(l.Group),
			Pod:         newPodRef(),
			To:          step.to,
			Original:    limit,
			Weight:      step.weight,
		}

		if err := throttler.Throttle(plan, l.Group); err != nil {
			return fmt.Errorf("throttling: %w", err)
		}
	}

	return nil
}

// changeMemory reclaims and lowers the limit, restores it, lowers it again, restores a part, and stops in order.
func (l scenario) changeMemory(layout cgroup.Layout, journal *act.Journal, kernel act.FileWriter) error {
	before, err := readMemoryHigh(layout, l.Group)
	if err != nil {
		return err
	}

	throttler := act.NewMemoryThrottler(act.MemoryThrottlerConfig{
		Layout:  layout,
		Journal: journal,
		Files:   kernel,
		Clock:   clock.RealClock{},
		Beat:    func(string) {},
	})

	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- throttler.Run(ctx) }()

	const mebi = 1 << 20
	var errs []error
	for _, step := range []struct {
		to    qos.MemoryHigh
		frees units.Bytes
	}{{60 * mebi, 4 * mebi}, {before, -1}, {50 * mebi, 4 * mebi}, {56 * mebi, -1}} {
		errs = append(errs, throttleMemory(throttler, qos.MemoryThrottle{
			ContainerID: filepath.Base(l.Group),
			Pod:         newPodRef(),
			To:          step.to,
			Original:    before,
			Freed:       step.frees,
		}, l.Group))
	}

	end()
	return errors.Join(append(errs, <-done)...)
}

// readMemoryHigh returns the container's current memory.high.
func readMemoryHigh(layout cgroup.Layout, group string) (qos.MemoryHigh, error) {
	text, err := layout.ReadSetting(&host.Reader{}, group, cgroup.FileHigh)
	if err != nil {
		return 0, fmt.Errorf("reading memory.high: %w", err)
	}

	if text == "max" {
		return qos.NoMemoryHigh, nil
	}

	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading memory.high: %w", err)
	}

	return qos.MemoryHigh(n), nil
}

// throttleMemory enqueues a change and waits for its outcome.
func throttleMemory(throttler *act.MemoryThrottler, t qos.MemoryThrottle, group string) error {
	if !throttler.Enqueue(t, group) {
		return errors.New("a change of memory is not taken")
	}

	for {
		if out := throttler.Drain(); len(out) > 0 {
			return out[0].Err
		}

		<-time.After(time.Millisecond)
	}
}
