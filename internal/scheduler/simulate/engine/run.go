// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"crane.io/crane/internal/scheduler/simulate/peer"
	"crane.io/crane/internal/scheduler/simulate/quality"
	"crane.io/crane/internal/scheduler/simulate/simcluster"
	"crane.io/crane/internal/scheduler/simulate/simscenario"
)

// Unschedulable pods are retried after the first pause, which doubles up to the last. Upstream retries after changes
// that could help, which in a large cluster happen all the time; the backoff bounds the cost as upstream's queueing
// hints do.
const (
	retryEvery = 5 * time.Second
	firstPause = 5 * time.Second
	lastPause  = 80 * time.Second
)

// waiting is an unschedulable pod.
type waiting struct {
	pod   int
	next  time.Duration
	pause time.Duration
}

// sampleEvery is the interval between measurements of true usage.
const sampleEvery = time.Minute

// Run schedules the pods of a simulated cluster with a policy. It returns an error if a plugin fails, or if a pod was
// placed on a node without capacity for it.
func Run(ctx context.Context, s *simscenario.Scenario, w *simcluster.World, seed uint64, policy func(peer.Env) peer.Policy) (quality.Run, error) {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	defer cancel()

	sim, err := newSimulation(ctx, s, w, seed, policy)
	if err != nil {
		return quality.Run{}, err
	}
	defer sim.close()

	sim.events.add(0, sim.scrape)
	sim.events.add(s.Time.WarmUp.Duration, sim.measure)
	sim.events.add(retryEvery, func() { sim.retry(ctx) })

	if sim.policy.Start != nil {
		sim.policy.Start()
	}

	arrived := 0
	for {
		if err := ctx.Err(); err != nil {
			return quality.Run{}, fmt.Errorf("simulating %s: %w", s.Name, err)
		}

		// Events come before arrivals: a pod that arrives at the time of a departure finds the capacity.
		limit := s.Length() - 1
		if arrived < len(w.Pods) {
			limit = min(limit, w.Pods[arrived].Arrival)
		}

		if next, ok := sim.events.next(limit); ok {
			sim.now = next.at
			next.do()
		} else if arrived < len(w.Pods) && w.Pods[arrived].Arrival < s.Length() {
			sim.now = w.Pods[arrived].Arrival
			sim.arrive(ctx, arrived)
			arrived++
		} else {
			break
		}

		if sim.err != nil {
			return quality.Run{}, fmt.Errorf("simulating %s at %v: %w", s.Name, sim.now, sim.err)
		}
	}

	return sim.result(), nil
}

// scrape samples the cluster for the meter.
func (s *simulation) scrape() {
	s.events.add(s.now+s.spec.Metrics.Scrape.Duration, s.scrape)
	s.truth.Sample(s.now, s.cpu, s.memory)

	if hidden := s.spec.Metrics.HiddenDelay.Duration; hidden > 0 {
		at := s.now
		cpu := append([]float64(nil), s.cpu...)
		memory := append([]float64(nil), s.memory...)
		s.events.add(s.now+hidden, func() { s.meter.Scrape(at, cpu, memory) })
	} else {
		s.meter.Scrape(s.now, s.cpu, s.memory)
	}

	if s.policy.Scraped != nil {
		s.policy.Scraped()
	}
}

// measure records the true usage.
func (s *simulation) measure() {
	s.events.add(s.now+sampleEvery, s.measure)
	s.truth.Sample(s.now, s.cpu, s.memory)
	s.tally.Add(s.cpu, s.milli, s.truth.InUse(), sampleEvery)
	s.waited += float64(len(s.pending)) * sampleEvery.Minutes()
}

func (s *simulation) retry(ctx context.Context) {
	s.events.add(s.now+retryEvery, func() { s.retry(ctx) })
	if len(s.pending) == 0 {
		return
	}

	remaining := s.pending[:0]
	for _, w := range s.pending {
		if w.next <= s.now && s.err == nil {
			if s.schedule(ctx, w.pod) {
				continue
			}

			w.pause = min(2*w.pause, lastPause)
			w.next = s.now + w.pause
		}

		remaining = append(remaining, w)
	}

	s.pending = remaining
}

func (s *simulation) arrive(ctx context.Context, pod int) {
	if !s.schedule(ctx, pod) && s.err == nil {
		s.unschedulable++
		s.pending = append(s.pending, waiting{pod: pod, next: s.now + firstPause, pause: firstPause})
	}
}

// schedule selects a node for a pod and binds it. It returns false if there is none, and on an error.
func (s *simulation) schedule(ctx context.Context, pod int) bool {
	if err := s.cache.UpdateSnapshot(s.logger, s.snapshot); err != nil {
		return s.fail(err)
	}

	nodes, err := s.snapshot.NodeInfos().List()
	if err != nil {
		return s.fail(err)
	}

	object := s.object(pod)
	state := framework.NewCycleState()
	name, err := s.cycle.find(ctx, state, object, nodes)
	if err != nil {
		return s.fail(err)
	}

	if name == "" {
		return false
	}

	// The bound copy is assumed first, as upstream does, so that plugins see the pod on its node during Reserve.
	bound := object.DeepCopy()
	bound.Spec.NodeName = name
	if err := s.cache.AssumePod(s.logger, bound); err != nil {
		return s.fail(err)
	}

	if status := s.framework.RunReservePluginsReserve(ctx, state, object, name); !status.IsSuccess() {
		s.framework.RunReservePluginsUnreserve(ctx, state, object, name)
		if err := s.cache.ForgetPod(s.logger, bound); err != nil {
			return s.fail(err)
		}

		if status.IsRejected() {
			return false
		}

		return s.fail(fmt.Errorf("reserving a node for %s: %w", object.Name, status.AsError()))
	}

	s.framework.RunPostBindPlugins(ctx, state, bound, name)
	s.bind(pod, s.nodeIndex[name], bound)
	return s.err == nil
}

// fail records the first error, which ends the run. It returns false, for callers that report success.
func (s *simulation) fail(err error) bool {
	if s.err == nil {
		s.err = err
	}

	return false
}
