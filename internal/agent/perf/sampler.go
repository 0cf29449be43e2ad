// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/oncelog"
)

const (
	// windowLength is the part of each period that is counted, since cgroup counters slow down every context switch. A period is shorter
	// than the minute for which rules accept a measurement by default.
	windowLength = 10 * time.Second
	periodLength = 45 * time.Second
	// idleInterval is the interval at which a Sampler without pods checks for pods.
	idleInterval = 5 * time.Second
	// pollInterval is the interval at which counted pods are checked for existence: an open counter keeps a part of the cgroup in memory.
	pollInterval = time.Second
	// maxDescriptors limits the open counters, two per pod and CPU. Further pods take turns.
	maxDescriptors = 1024
	// maxAge is the maximum age of a reported sample. With turns a sample may be several periods old.
	maxAge = 5 * time.Minute
)

// Target is the cgroup of a pod to be counted.
type Target struct {
	UID string
	// Dir is the directory of its cgroup as returned by Layout.PerfDir.
	Dir string
}

// Sample holds the cycles per instruction of a pod in a window.
type Sample struct {
	At                   time.Time
	CyclesPerInstruction float64
}

// Config configures a Sampler.
type Config struct {
	// Pods returns the pods to be counted.
	Pods  func() []Target
	Root  host.Root
	Clock clock.Clock
	Log   logr.Logger
	Beat  func(step string)
}

// Sampler counts pods in a window of each period. Latest is safe for concurrent use.
type Sampler struct {
	config      Config
	openCounter func(dir string, cpu int) (counter, error)
	dirExists   func(dir string) bool
	onlineCPUs  func(host.Root) ([]int, error)
	nextPod     int // index of the first pod of the next window
	problems    *oncelog.Logger

	mu      sync.Mutex
	samples map[string]Sample
}

// New returns a sampler.
func New(config Config) *Sampler {
	return &Sampler{
		config:      config,
		problems:    oncelog.New(config.Log),
		openCounter: openHardware,
		dirExists:   dirExists,
		onlineCPUs:  listOnlineCPUs,
		samples:     map[string]Sample{},
	}
}

func dirExists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// listOnlineCPUs returns the online CPUs.
func listOnlineCPUs(root host.Root) ([]int, error) {
	var reader host.Reader
	set, err := reader.OnlineCPUs(root)
	if err != nil {
		return nil, err
	}

	return slices.Collect(set.All()), nil
}

// Latest returns the last sample of a pod; false if there is none or it is too old.
func (s *Sampler) Latest(uid string) (Sample, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	sample, ok := s.samples[uid]
	age := s.config.Clock.Since(sample.At)
	return sample, ok && age <= maxAge && age >= -maxAge
}

// Name implements the agent's manager interface.
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

// wait returns false if ctx ends before the time has passed. It reports heartbeats meanwhile.
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

// removeMissing drops the samples of removed pods.
func (s *Sampler) removeMissing(pods []Target) {
	present := make(map[string]bool, len(pods))
	for _, p := range pods {
		present[p.UID] = true
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	for uid := range s.samples {
		if !present[uid] {
			delete(s.samples, uid)
		}
	}
}

// podCounters holds the open counters of a pod, one per CPU.
type podCounters struct {
	Target

	counters []counter
}

func (c *podCounters) close() {
	for _, k := range c.counters {
		k.close()
	}
	c.counters = nil
}

// sampleWindow counts pods for one window and returns false if ctx ended.
func (s *Sampler) sampleWindow(ctx context.Context, pods []Target) bool {
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

// openCounters opens counters for as many pods as the limit allows, starting with the first that had to wait.
func (s *Sampler) openCounters(pods []Target) []podCounters {
	cpus, err := s.onlineCPUs(s.config.Root)
	if err != nil {
		s.problems.Error("counters", "counting cycles and instructions of pods", err)
		return nil
	}

	count := min(maxDescriptors/(2*len(cpus)), len(pods))
	start := s.nextPod % len(pods)

	s.nextPod = start + count
	list := make([]podCounters, 0, count)
	var firstErr error
	for i := range count {
		c := podCounters{Target: pods[(start+i)%len(pods)]}
		for _, cpu := range cpus {
			k, err := s.openCounter(c.Dir, cpu)
			if err != nil {
				if s.dirExists(c.Dir) && firstErr == nil {
					firstErr = err
				}

				c.close() // A sum needs all CPUs.
				break
			}

			c.counters = append(c.counters, k)
		}

		list = append(list, c)
	}

	s.problems.Error("counters", "counting cycles and instructions of pods", firstErr)
	return list
}

// recordSample reads the counters of a pod and stores its sample.
func (s *Sampler) recordSample(c *podCounters) {
	var all totals
	for _, k := range c.counters {
		n, err := k.read()
		if err != nil {
			s.problems.Error("counters", "counting cycles and instructions of pods", err)
			return
		}

		all.add(n)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if v, ok := all.cyclesPerInstruction(); ok {
		s.samples[c.UID] = Sample{At: s.config.Clock.Now(), CyclesPerInstruction: v}
	} else if len(c.counters) > 0 {
		delete(s.samples, c.UID) // The previous sample is outdated.
	}
}

// reading is the content of a counter group on one CPU (struct read_format in linux/perf_event.h).
type reading struct {
	cycles, instructions uint64
	// enabled is how long the group was to count, and running how long it did: the kernel multiplexes more counters than the CPU has.
	// Both leave out the time in which the pod was not on the CPU.
	enabled, running time.Duration
}

// errNoTimes reports counters whose values advance while the kernel keeps no time for them. Linux does this for a cgroup between whose
// processes and those of other groups no CPU has switched yet, such as the root group of a hierarchy without other groups in use.
var errNoTimes = errors.New("the kernel keeps no counter times for this cgroup: it is the root group, or perf_event groups are not in use")

// validate returns errNoTimes for values that cannot be scaled.
func (r reading) validate() error {
	if r.cycles > 0 && r.enabled == 0 {
		return errNoTimes
	}

	return nil
}

// counter is a counter group of a pod on one CPU.
type counter interface {
	read() (reading, error)
	close()
}

// totals sums the readings of all CPUs.
type totals struct {
	cycles, instructions float64
	enabled, running     time.Duration
}

// add adds the reading of a CPU. It scales the values up to the time enabled, which assumes that the pod behaved the same while its counters
// were multiplexed out.
func (t *totals) add(c reading) {
	t.enabled += c.enabled
	if c.running <= 0 || c.enabled < c.running {
		return
	}

	scale := float64(c.enabled) / float64(c.running)
	t.running += c.running
	t.cycles += scale * float64(c.cycles)
	t.instructions += scale * float64(c.instructions)
}

const (
	// minRunning is the minimum running time of a usable sample.
	minRunning = 10 * time.Millisecond
	// minRunningShare is the minimum running time as a share of the time enabled.
	minRunningShare = 0.05
)

// cyclesPerInstruction returns false if too little was counted or the counters were multiplexed out nearly all of the time.
func (t *totals) cyclesPerInstruction() (float64, bool) {
	if t.running < minRunning || float64(t.running) < minRunningShare*float64(t.enabled) || t.instructions <= 0 || t.cycles <= 0 {
		return 0, false
	}

	return t.cycles / t.instructions, true
}
