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
	// windowLength is how long is counted of each period: counters of cgroups cost at each switch from one task to another. A period is less than
	// the minute for which rules take a measurement by default.
	windowLength = 10 * time.Second
	periodLength = 45 * time.Second
	// idleInterval is the time between two looks for somebody to be counted.
	idleInterval = 5 * time.Second
	// pollInterval is the time between two looks at whether a pod that is counted is still there: an open counter keeps a part of its cgroup.
	pollInterval = time.Second
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
	config        Config
	openCounter   func(dir string, cpu int) (counter, error)
	dirExists     func(dir string) bool
	onlineCPUs    func(host.Root) ([]int, error)
	nextPod       int    // pod that had to wait
	loggedFailure string // told last

	mu      sync.Mutex
	samples map[string]Sample
}

// New returns a sampler.
func New(config Config) *Sampler {
	return &Sampler{config: config, openCounter: openHardware, dirExists: dirExists, onlineCPUs: listOnlineCPUs, samples: map[string]Sample{}}
}

func dirExists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// listOnlineCPUs are those that can be counted on.
func listOnlineCPUs(root host.Root) ([]int, error) {
	var reader host.Reader
	set, err := reader.OnlineCPUs(root)
	if err != nil {
		return nil, err
	}
	return slices.Collect(set.All()), nil
}

// Latest is the last sample of a pod; false where there is none, or it is too old.
func (s *Sampler) Latest(uid string) (Sample, bool) {
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
		s.removeMissing(pods)
		if len(pods) == 0 {
			if !s.wait(ctx, idleInterval) {
				return nil
			}
			continue
		}
		if !s.sampleWindow(ctx, pods) || !s.wait(ctx, periodLength-windowLength) {
			return nil
		}
	}
}

// wait tells whether the time has passed before ctx ends. The heart beats meanwhile.
func (s *Sampler) wait(ctx context.Context, span time.Duration) bool {
	for ; span > 0; span -= pollInterval {
		select {
		case <-ctx.Done():
			return false
		case <-s.config.Clock.After(min(span, pollInterval)):
			s.config.Beat("wait")
		}
	}
	return ctx.Err() == nil
}

// removeMissing forgets pods that are gone.
func (s *Sampler) removeMissing(pods []Pod) {
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

// podCounters is a pod that is being counted, on each CPU.
type podCounters struct {
	Pod

	counters []counter
}

func (c *podCounters) close() {
	for _, k := range c.counters {
		k.close()
	}
	c.counters = nil
}

// sampleWindow counts pods for a window, and tells whether ctx is still there after it.
func (s *Sampler) sampleWindow(ctx context.Context, pods []Pod) bool {
	list := s.openCounters(pods)
	defer func() {
		for i := range list {
			list[i].close()
		}
	}()
	for range int(windowLength / pollInterval) {
		if !s.wait(ctx, pollInterval) {
			return false
		}
		for i := range list {
			if c := &list[i]; c.counters != nil && !s.dirExists(c.Dir) {
				c.close()
			}
		}
	}
	for i := range list {
		s.recordSample(&list[i])
	}
	return true
}

// openCounters opens counters for as many pods as there is room for, from the one that had to wait the last time.
func (s *Sampler) openCounters(pods []Pod) []podCounters {
	cpus, err := s.onlineCPUs(s.config.Root)
	if err != nil {
		s.logFailure(err)
		return nil
	}
	room := min(maxDescriptors/(2*len(cpus)), len(pods))
	start := s.nextPod % len(pods)
	s.nextPod = start + room
	list := make([]podCounters, 0, room)
	var first error
	for i := range room {
		c := podCounters{Pod: pods[(start+i)%len(pods)]}
		for _, cpu := range cpus {
			k, err := s.openCounter(c.Dir, cpu)
			if err != nil {
				if s.dirExists(c.Dir) && first == nil {
					first = err
				}
				c.close() // A sum without one of the CPUs is none.
				break
			}
			c.counters = append(c.counters, k)
		}
		list = append(list, c)
	}
	s.logFailure(first)
	return list
}

// recordSample reads what was counted of a pod.
func (s *Sampler) recordSample(c *podCounters) {
	var all totals
	for _, k := range c.counters {
		n, err := k.read()
		if err != nil {
			s.logFailure(err)
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

// logFailure tells once why nothing is counted, until it is.
func (s *Sampler) logFailure(err error) {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != "" && why != s.loggedFailure {
		s.config.Log.Info("Cannot count cycles and instructions of pods", "error", why)
	}
	s.loggedFailure = why
}
