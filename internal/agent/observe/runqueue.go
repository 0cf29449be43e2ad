// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"slices"
	"time"

	"crane.io/crane/internal/agent/host"
)

// Reading wait times takes a file per thread. It is therefore limited to some threads, at long intervals, and only if enabled.
const (
	// runQueueInterval is the interval of samples of a container, if the limit of reads allows it.
	runQueueInterval = 10 * time.Second
	// maxSampledThreads limits the threads of a container, maxReadsPerMeasurement the files read in a measurement.
	maxSampledThreads      = 8
	maxReadsPerMeasurement = 64
	// maxReadsPerSample is the maximum number of files of one sample: the thread list, threads of the previous sample and their
	// replacements.
	maxReadsPerSample = 1 + 2*maxSampledThreads
	// maxRunQueueAge is the maximum age of a reported sample.
	maxRunQueueAge = time.Minute
	// maxListedThreads limits the length of a thread list.
	maxListedThreads = 4096
)

// RunQueue is the time that threads of a container waited for a CPU.
type RunQueue struct {
	// At is the time of the sample, which covers the time since the previous one.
	At time.Time
	// Waiting is the wait time per second, summed over the sampled threads: 2 means two threads that waited all the time.
	Waiting float64
	// Sampled threads out of Threads were read.
	Sampled, Threads int
}

// RunQueue sums the samples of a pod's containers, with the oldest time; unknown without samples.
func (p *Pod) RunQueue() (sum Known[RunQueue]) {
	for i := range p.Containers {
		q := p.Containers[i].RunQueue
		if !q.OK {
			continue // The sandbox has one idle thread.
		}

		if !sum.OK || q.Value.At.Before(sum.Value.At) {
			sum.Value.At = q.Value.At
		}

		sum.Value.Waiting += q.Value.Waiting
		sum.Value.Sampled += q.Value.Sampled
		sum.Value.Threads += q.Value.Threads
		sum.OK = true
	}

	return sum
}

// Sampling selects the containers whose run queues are sampled.
type Sampling int

// Sampling modes.
const (
	// Never selects none.
	Never Sampling = iota
	// WithoutPressure selects pods without CPU pressure.
	WithoutPressure
	// Always selects all.
	Always
)

// containerThreads holds the sampled threads of a container.
type containerThreads struct {
	list        host.File
	sampledAt   time.Time
	threads     []threadSample
	last        Known[RunQueue]
	measurement uint64
}

type threadSample struct {
	id     uint64
	file   host.File
	waited time.Duration
	read   bool // in this sample
}

// runQueueState holds the state of run queue sampling.
type runQueueState struct {
	sampling      Sampling
	groups        map[string]*containerThreads // by path
	nextContainer int                          // container to start with in the next measurement
	readsLeft     int                          // in this measurement
	exhausted     bool                         // a container has to wait for the next measurement
	threadIDs     []uint64
}

var errHiddenThreads = errors.New("threads of another PID namespace: the agent needs the host's (hostPID)")

// SetRunQueueSampling sets the sampling mode from the next measurement on.
func (o *Observer) SetRunQueueSampling(s Sampling) { o.runQueues.sampling = s }

// collectRunQueues samples the containers that are due and reports the last samples of all.
func (o *Observer) collectRunQueues() {
	q := &o.runQueues
	if q.sampling == Never {
		q.groups = nil
	} else if q.groups == nil {
		q.groups = map[string]*containerThreads{}
	}

	q.readsLeft = maxReadsPerMeasurement
	q.exhausted = false

	containers := 0
	for i := range o.snapshot.Pods {
		containers += len(o.snapshot.Pods[i].Containers)
	}

	start := 0
	if containers > 0 {
		start = q.nextContainer % containers
	}

	// Two parts: from nextContainer to the end, and from the beginning.
	for range 2 {
		n := 0
		for i := range o.snapshot.Pods {
			p := &o.snapshot.Pods[i]
			for j := range p.Containers {
				if n >= start {
					o.collectRunQueue(p, &p.Containers[j], n)
				}
				n++
			}
		}

		start = 0
	}

	for path, w := range q.groups {
		if w.measurement != o.measurement {
			delete(q.groups, path)
		}
	}
}

func (o *Observer) collectRunQueue(p *Pod, c *Container, index int) {
	q := &o.runQueues
	now := o.snapshot.At

	if q.sampling == Never || q.sampling == WithoutPressure && p.Pressure.CPU.OK {
		c.RunQueue = Known[RunQueue]{}
		return
	}

	w := q.groups[c.Path]
	if w == nil {
		w = &containerThreads{list: host.NewFile(o.layout.ThreadsFile(c.Path))}
		q.groups[c.Path] = w
	}

	w.measurement = o.measurement
	if w.sampledAt.After(now) {
		// The clock was set back.
		w.sampledAt = time.Time{}
		w.last = Known[RunQueue]{}
	}

	switch due := now.Sub(w.sampledAt) >= runQueueInterval; {
	case due && q.readsLeft >= maxReadsPerSample:
		o.recordProblem("run queue", q.sample(o.hostFiles, now, w))
	case due && !q.exhausted:
		// It comes first in the next measurement.
		q.exhausted = true
		q.nextContainer = index
	}

	c.RunQueue = w.last
	if w.last.OK && now.Sub(w.last.Value.At) > maxRunQueueAge {
		c.RunQueue = Known[RunQueue]{}
	}
}

// sample reads the threads of the previous sample, computes their wait time since, and replaces those that have ended.
func (q *runQueueState) sample(files hostFiles, now time.Time, w *containerThreads) error {
	span := now.Sub(w.sampledAt)
	first := w.sampledAt.IsZero()
	w.sampledAt = now

	w.last = Known[RunQueue]{}
	threads, err := q.listThreads(files, w)
	if err != nil || threads == 0 {
		return err
	}

	// A reused thread ID may have a lower counter; it counts from the next sample on.
	sample := RunQueue{At: now, Threads: threads}

	var waited time.Duration
	w.threads = slices.DeleteFunc(w.threads, func(t threadSample) bool { return !slices.Contains(q.threadIDs, t.id) })
	for i := range w.threads {
		t := &w.threads[i]
		before := t.waited
		if t.read = q.readThread(files, t) == nil; t.read && t.waited >= before {
			waited += t.waited - before
			sample.Sampled++
		}
	}

	w.threads = slices.DeleteFunc(w.threads, func(t threadSample) bool { return !t.read })
	if sample.Sampled > 0 && !first && span > 0 {
		sample.Waiting = float64(waited) / float64(span)
		w.last = known(sample)
	}

	return q.addThreads(files, w)
}

// listThreads reads the list of a container's threads and returns their number.
func (q *runQueueState) listThreads(files hostFiles, w *containerThreads) (int, error) {
	q.readsLeft--
	q.threadIDs = q.threadIDs[:0]
	content, err := files.reader.Read(&w.list)
	w.list.Close() // It is read rarely, and there is one per container.

	if errors.Is(err, host.ErrGone) {
		return 0, nil
	}

	n := 0
	hidden := false
	if err == nil {
		err = host.ParseThreads(content, func(id uint64) {
			n++
			hidden = hidden || id == 0

			if id != 0 && len(q.threadIDs) < maxListedThreads {
				q.threadIDs = append(q.threadIDs, id)
			}
		})
	}

	if err == nil && hidden {
		err = errHiddenThreads
	}

	return n, err
}

// addThreads adds threads to the next sample, spread over the list, up to the limit.
func (q *runQueueState) addThreads(files hostFiles, w *containerThreads) error {
	list := q.threadIDs
	step := max(len(list)/maxSampledThreads, 1)
	for offset := range step {
		for i := offset; i < len(list) && len(w.threads) < maxSampledThreads; i += step {
			if slices.ContainsFunc(w.threads, func(t threadSample) bool { return t.id == list[i] }) {
				continue
			}

			t := threadSample{id: list[i], file: host.NewSchedStatFile(files.root, list[i])}
			err := q.readThread(files, &t)
			if err == nil {
				w.threads = append(w.threads, t)
			} else if !errors.Is(err, host.ErrGone) {
				return err
			}
		}
	}

	return nil
}

func (q *runQueueState) readThread(files hostFiles, t *threadSample) error {
	q.readsLeft--
	content, err := files.reader.Read(&t.file)
	t.file.Close()

	if err != nil {
		return err
	}

	s, err := host.ParseSchedStat(content)
	t.waited = s.WaitTime
	return err
}
