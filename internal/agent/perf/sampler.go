// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/host"
)

const (
	// window is how long is counted of each period: counters of cgroups cost at each switch from one task to another. A period is less than
	// the minute for which rules take a measurement by default.
	window = 10 * time.Second
	period = 45 * time.Second
	// idle is the time between two looks for somebody to be counted.
	idle = 5 * time.Second
	// look is the time between two looks at whether a pod that is counted is still there: an open counter keeps a part of its cgroup.
	look = time.Second
	// maxDescriptors bounds the counters that are open at a time, two for each pod and CPU. Pods for which there is no room take turns.
	maxDescriptors = 1024
	// maxAge is the age up to which a sample is shown: with turns, one may be some periods old.
	maxAge = 5 * time.Minute
)

// Pod is a pod to be counted.
type Pod struct {
	UID string
	// Dir is the directory of its cgroup, as PerfGroup has it.
	Dir string
}

// Sample is how many cycles a pod needed for an instruction in a window.
type Sample struct {
	At                   time.Time
	CyclesPerInstruction float64
}

// Config is what a Sampler works with.
type Config struct {
	// Pods are those to be counted.
	Pods  func() []Pod
	Root  host.Root
	Clock clock.Clock
	Log   logr.Logger
	// Beat is the heartbeat.
	Beat func(step string)
}

// Sampler is the manager that counts, a window in each period. Last is safe for concurrent use.
type Sampler struct {
	config Config
	open   func(dir string, cpu int) (counter, error)
	exists func(dir string) bool
	cpus   func(host.Root) ([]int, error)
	next   int    // pod that had to wait
	failed string // told last

	mu      sync.Mutex
	samples map[string]Sample
}

// New returns a sampler.
func New(config Config) *Sampler {
	return &Sampler{config: config, open: openHardware, exists: exists, cpus: onlineCPUs, samples: map[string]Sample{}}
}

func exists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// onlineCPUs are those that can be counted on.
func onlineCPUs(root host.Root) ([]int, error) {
	var reader host.Reader
	set, err := reader.OnlineCPUs(root)
	if err != nil {
		return nil, err
	}
	return slices.Collect(set.All()), nil
}

// Last is the last sample of a pod; false where there is none, or it is too old.
func (s *Sampler) Last(uid string) (Sample, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sample, ok := s.samples[uid]
	age := s.config.Clock.Since(sample.At)
	return sample, ok && age <= maxAge && age >= -maxAge
}

// Name implements the agent's Manager.
func (*Sampler) Name() string { return "cpi" }

// Run counts until ctx ends.
func (s *Sampler) Run(ctx context.Context) error {
	for {
		s.config.Beat("begin")
		pods := s.config.Pods()
		s.keep(pods)
		if len(pods) == 0 {
			if !s.wait(ctx, idle) {
				return nil
			}
			continue
		}
		if !s.count(ctx, pods) || !s.wait(ctx, period-window) {
			return nil
		}
	}
}

// wait tells whether the time has passed before ctx ends. The heart beats meanwhile.
func (s *Sampler) wait(ctx context.Context, span time.Duration) bool {
	for ; span > 0; span -= look {
		select {
		case <-ctx.Done():
			return false
		case <-s.config.Clock.After(min(span, look)):
			s.config.Beat("wait")
		}
	}
	return ctx.Err() == nil
}

// keep forgets pods that are gone.
func (s *Sampler) keep(pods []Pod) {
	here := make(map[string]bool, len(pods))
	for _, p := range pods {
		here[p.UID] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.samples {
		if !here[uid] {
			delete(s.samples, uid)
		}
	}
}

// counting is a pod that is being counted, on each CPU.
type counting struct {
	Pod

	counters []counter
}

func (c *counting) close() {
	for _, k := range c.counters {
		k.close()
	}
	c.counters = nil
}

// count counts pods for a window, and tells whether ctx is still there after it.
func (s *Sampler) count(ctx context.Context, pods []Pod) bool {
	list := s.begin(pods)
	defer func() {
		for i := range list {
			list[i].close()
		}
	}()
	for range int(window / look) {
		if !s.wait(ctx, look) {
			return false
		}
		for i := range list {
			if c := &list[i]; c.counters != nil && !s.exists(c.Dir) {
				c.close()
			}
		}
	}
	for i := range list {
		s.end(&list[i])
	}
	return true
}

// begin opens counters for as many pods as there is room for, from the one that had to wait the last time.
func (s *Sampler) begin(pods []Pod) []counting {
	cpus, err := s.cpus(s.config.Root)
	if err != nil {
		s.fails(err)
		return nil
	}
	room := min(maxDescriptors/(2*len(cpus)), len(pods))
	start := s.next % len(pods)
	s.next = start + room
	list := make([]counting, 0, room)
	var first error
	for i := range room {
		c := counting{Pod: pods[(start+i)%len(pods)]}
		for _, cpu := range cpus {
			k, err := s.open(c.Dir, cpu)
			if err != nil {
				if s.exists(c.Dir) && first == nil {
					first = err
				}
				c.close() // A sum without one of the CPUs is none.
				break
			}
			c.counters = append(c.counters, k)
		}
		list = append(list, c)
	}
	s.fails(first)
	return list
}

// end reads what was counted of a pod.
func (s *Sampler) end(c *counting) {
	var all sum
	for _, k := range c.counters {
		n, err := k.read()
		if err != nil {
			s.fails(err)
			return
		}
		all.add(n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := all.cyclesPerInstruction(); ok {
		s.samples[c.UID] = Sample{At: s.config.Clock.Now(), CyclesPerInstruction: v}
	} else if len(c.counters) > 0 {
		delete(s.samples, c.UID) // What it was before is not what it is.
	}
}

// fails tells once why nothing is counted, until it is.
func (s *Sampler) fails(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != "" && why != s.failed {
		s.config.Log.Info("Cannot count cycles and instructions of pods", "error", why)
	}
	s.failed = why
}
