// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"slices"
	"time"

	"crane.io/crane/internal/agent/host"
)

// Reading how long threads wait is a file for each of them, so it is done for few of them, seldom, and only where somebody asks.
const (
	// runQueueInterval is the time between two samples of a container, where there is room for it in a look.
	runQueueInterval = 10 * time.Second
	// maxSampledThreads are read of a container, maxReadsPerRound files in one look at most.
	maxSampledThreads = 8
	maxReadsPerRound  = 64
	// maxReadsPerSample are the files of one sample at most: the list, threads of before that may have ended, and others in their place.
	maxReadsPerSample = 1 + 2*maxSampledThreads
	// maxRunQueueAge is the age up to which a sample is shown.
	maxRunQueueAge = time.Minute
	// maxListedThreads bounds what is read of a list of threads.
	maxListedThreads = 4096
)

// RunQueue is how long threads of a container waited for a CPU.
type RunQueue struct {
	// At is when it was sampled, of the time since the sample before.
	At time.Time
	// Waiting is the time waited by second, of all sampled threads together: 2 are two threads that waited all the time.
	Waiting float64
	// Sampled of so many Threads were looked at.
	Sampled, Threads int
}

// RunQueue is that of all containers of a pod of which there is a sample, as of the oldest; unknown where there is none.
func (p *Pod) RunQueue() (sum Known[RunQueue]) {
	for i := range p.Containers {
		q := p.Containers[i].RunQueue
		if !q.OK {
			continue // The sandbox has one thread, which does nothing.
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

// Sampling says of which containers it is sampled how long their threads wait for a CPU.
type Sampling int

// The samplings.
const (
	// Never is none.
	Never Sampling = iota
	// WithoutPressure are those of pods that have no pressure of cpu.
	WithoutPressure
	// Always are all.
	Always
)

// containerThreads are the threads of a container that are sampled.
type containerThreads struct {
	list      host.File
	sampledAt time.Time
	threads   []threadSample
	last      Known[RunQueue]
	round     uint64
}

type threadSample struct {
	id     uint64
	file   host.File
	waited time.Duration
	read   bool // was read in the present sample
}

// runQueueState is what is remembered of run queues.
type runQueueState struct {
	sampling      Sampling
	groups        map[string]*containerThreads // by path
	nextContainer int                          // container that had to wait in the last look
	readsLeft     int                          // files that may be read in this look
	exhausted     bool                         // somebody has to wait for the next look
	threadIDs     []uint64
}

var errHiddenThreads = errors.New("threads of another PID namespace: the agent wants the host's (hostPID)")

// SetRunQueueSampling says whether and where run queues are sampled from the next look on.
func (o *Observer) SetRunQueueSampling(s Sampling) { o.runQueues.sampling = s }

// collectRunQueues samples the containers whose turn it is, and shows the last samples of all.
func (o *Observer) collectRunQueues() {
	q := &o.runQueues
	if q.sampling == Never {
		q.groups = nil
	} else if q.groups == nil {
		q.groups = map[string]*containerThreads{}
	}
	q.readsLeft, q.exhausted = maxReadsPerRound, false
	containers := 0
	for i := range o.snapshot.Pods {
		containers += len(o.snapshot.Pods[i].Containers)
	}
	start := 0
	if containers > 0 {
		start = q.nextContainer % containers
	}
	// Twice around: from where the last look ended to the end, and from the beginning.
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
		if w.round != o.round {
			delete(q.groups, path)
		}
	}
}

func (o *Observer) collectRunQueue(p *Pod, c *Container, at int) {
	q, now := &o.runQueues, o.snapshot.At
	if q.sampling == Never || q.sampling == WithoutPressure && p.Pressure.CPU.OK {
		c.RunQueue = Known[RunQueue]{}
		return
	}
	w := q.groups[c.Path]
	if w == nil {
		w = &containerThreads{list: host.NewFile(o.layout.ThreadsFile(c.Path))}
		q.groups[c.Path] = w
	}
	w.round = o.round
	if w.sampledAt.After(now) {
		w.sampledAt, w.last = time.Time{}, Known[RunQueue]{} // The clock was set back.
	}
	switch due := now.Sub(w.sampledAt) >= runQueueInterval; {
	case due && q.readsLeft >= maxReadsPerSample:
		o.recordProblem("run queue", o.sampleRunQueue(w))
	case due && !q.exhausted:
		q.exhausted, q.nextContainer = true, at // It is the first of the next look.
	}
	c.RunQueue = w.last
	if w.last.OK && now.Sub(w.last.Value.At) > maxRunQueueAge {
		c.RunQueue = Known[RunQueue]{}
	}
}

// sampleRunQueue reads some threads of a container: those of the last sample, of which it can be said how long they have waited since, and
// others in the place of those that have ended.
func (o *Observer) sampleRunQueue(w *containerThreads) error {
	now := o.snapshot.At
	span := now.Sub(w.sampledAt)
	first := w.sampledAt.IsZero()
	w.sampledAt, w.last = now, Known[RunQueue]{}
	threads, err := o.listThreads(w)
	if err != nil || threads == 0 {
		return err
	}
	sample := RunQueue{At: now, Threads: threads}
	var waited time.Duration
	w.threads = slices.DeleteFunc(w.threads, func(t threadSample) bool { return !slices.Contains(o.runQueues.threadIDs, t.id) })
	for i := range w.threads {
		t := &w.threads[i]
		before := t.waited
		if t.read = o.readThread(t) == nil; t.read && t.waited >= before {
			waited += t.waited - before
			sample.Sampled++
		}
	}
	w.threads = slices.DeleteFunc(w.threads, func(t threadSample) bool { return !t.read })
	if sample.Sampled > 0 && !first && span > 0 {
		sample.Waiting = float64(waited) / float64(span)
		w.last = known(sample)
	}
	return o.addThreads(w)
}

// listThreads reads the list of a container's threads and returns how many there are.
func (o *Observer) listThreads(w *containerThreads) (int, error) {
	o.runQueues.readsLeft--
	o.runQueues.threadIDs = o.runQueues.threadIDs[:0]
	content, err := o.reader.Read(&w.list)
	w.list.Close() // Ten seconds are long; a file for each container is many.
	if errors.Is(err, host.ErrGone) {
		return 0, nil
	}
	n, hidden := 0, false
	if err == nil {
		err = host.ParseThreads(content, func(id uint64) {
			n++
			hidden = hidden || id == 0
			if id != 0 && len(o.runQueues.threadIDs) < maxListedThreads {
				o.runQueues.threadIDs = append(o.runQueues.threadIDs, id)
			}
		})
	}
	if err == nil && hidden {
		err = errHiddenThreads
	}
	return n, err
}

// addThreads takes threads into the next sample, spread over the list, until there are enough.
func (o *Observer) addThreads(w *containerThreads) error {
	list := o.runQueues.threadIDs
	step := max(len(list)/maxSampledThreads, 1)
	for from := range step {
		for i := from; i < len(list) && len(w.threads) < maxSampledThreads; i += step {
			if slices.ContainsFunc(w.threads, func(t threadSample) bool { return t.id == list[i] }) {
				continue
			}
			t := threadSample{id: list[i], file: host.NewSchedStatFile(o.root, list[i])}
			err := o.readThread(&t)
			if err == nil {
				w.threads = append(w.threads, t)
			} else if !errors.Is(err, host.ErrGone) {
				return err
			}
		}
	}
	return nil
}

func (o *Observer) readThread(t *threadSample) error {
	o.runQueues.readsLeft--
	content, err := o.reader.Read(&t.file)
	t.file.Close()
	if err != nil {
		return err
	}
	s, err := host.ParseSchedStat(content)
	t.waited = s.WaitTime
	return err
}
