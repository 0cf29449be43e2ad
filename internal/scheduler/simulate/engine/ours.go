// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/scheduler/dynamic"
	"crane.io/crane/internal/scheduler/pluginconfig"
	"crane.io/crane/internal/scheduler/simulate/peer"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// Ours configures Crane's plugin.
type Ours struct {
	// PolicyPath is the absolute path of the policy file, Policy is its content.
	PolicyPath string
	Policy     *nodeload.Policy
	// Strategy of config.DynamicArgs.
	Strategy string
	// Weight of the plugin's scores beside those of the default profile.
	Weight int32
	// History passes the usage of workloads to the plugin, as recommendations do.
	History bool
	// Rebalance moves pods off nodes that stay above the mark evict.
	Rebalance bool
}

// Build returns the default profile with Crane's plugin Dynamic, and the writer of its metrics.
func (o Ours) Build(env peer.Env) peer.Policy {
	args := &pluginconfig.DynamicArgs{
		PolicyConfigPath: o.PolicyPath,
		Strategy:         o.Strategy,
		ExplainAddress:   pluginconfig.ExplainNone,
		History:          pluginconfig.HistoryNone,
	}

	pluginconfig.SetDynamicDefaults(args)
	factory := dynamic.NewFactory(virtualClock{env: env}, dynamic.Registries{})
	if o.History {
		loadHistory(env, factory.History())
	}

	w := newWriter(env, o.Policy)
	p := peer.Policy{
		Plugin: dynamic.Name,
		New:    factory.New,
		Args:   args,
		Weight: o.Weight,
		Start:  w.start,
	}

	// Rebalancing moves pods, which no other policy does; only the simulation itself offers that.
	if sim, ok := env.(*simulation); ok && o.Rebalance {
		r, err := newRebalancer(sim, o.Policy)
		if err != nil {
			sim.fail(err)
			return p
		}

		p = r.attach(p)
	}

	return p
}

// loadHistory sets the mean usage of a pod of each workload.
func loadHistory(env peer.Env, history *dynamic.History) {
	for i, work := range env.World().Workloads {
		history.Learn(dynamic.WorkloadOf(podOf(i)), nodeload.Amount{
			CPU:    units.MilliCPU(float64(work.CPU) * work.PerRequest),
			Memory: units.Bytes(float64(work.Memory) * work.MemoryPerRequest),
		})
	}
}

// virtualClock returns the time of the simulation. Its timers never fire: nothing in a simulation waits.
type virtualClock struct {
	clock.RealClock
	env peer.Env
}

// Now implements clock.PassiveClock.
func (c virtualClock) Now() time.Time { return c.env.Clock() }

// Since implements clock.PassiveClock.
func (c virtualClock) Since(t time.Time) time.Duration { return c.env.Clock().Sub(t) }

// NewTicker implements clock.WithTicker.
func (c virtualClock) NewTicker(time.Duration) clock.Ticker { return stopped{} }

type stopped struct{}

func (stopped) C() <-chan time.Time { return nil }
func (stopped) Stop()               {}

// material is the smallest written change of a load, craned's default: two percentage points.
const material = 0.02

// writer does the work of the node-load controller: it reads each metric for all nodes once per period, and writes a
// node if a value has changed or is about to expire.
type writer struct {
	env     peer.Env
	policy  *nodeload.Policy
	written [][]nodeload.Sample
	rules   []nodeload.ChangeDetector
	format  nodeload.Format
}

func newWriter(env peer.Env, policy *nodeload.Policy) *writer {
	w := &writer{
		env:     env,
		policy:  policy,
		written: make([][]nodeload.Sample, len(policy.Metrics)),
		rules:   make([]nodeload.ChangeDetector, len(policy.Metrics)),
	}

	for i, m := range policy.Metrics {
		w.written[i] = make([]nodeload.Sample, len(env.World().Nodes))
		w.rules[i] = nodeload.ChangeDetector{
			MinChange:  material,
			Thresholds: policy.Thresholds(i),
			Active:     m.Active(),
			Period:     m.Period,
		}
	}

	return w
}

func (w *writer) start() {
	for i, m := range w.policy.Metrics {
		var tick func()
		tick = func() {
			w.env.At(w.env.Now()+m.Period, tick)
			w.readMetric(i)
		}
		w.env.At(w.env.Now(), tick)
	}
}

// readMetric reads one metric of all nodes. The readings arrive after the delay, with the time of their newest sample.
func (w *writer) readMetric(metric int) {
	readAt := w.env.Now()
	if w.env.Meter().Down(readAt) {
		return
	}

	name := w.policy.Metrics[metric].Name
	clock := w.env.WriterClock()
	samples := make([]nodeload.Sample, len(w.env.World().Nodes))
	for node := range samples {
		v, ok := w.env.Meter().Read(name, node)
		if newest, dated := w.env.Meter().SampleTime(node); ok && dated {
			samples[node] = nodeload.Sample{Value: units.Ratio(v), Time: clock.Add(newest - readAt)}
		}
	}

	w.env.At(readAt+w.env.Spec().Metrics.Delay.Duration, func() { w.write(metric, samples) })
}

func (w *writer) write(metric int, samples []nodeload.Sample) {
	name := w.policy.Metrics[metric].Name
	now := w.env.WriterClock()
	for node, next := range samples {
		if next.Time.IsZero() || w.rules[metric].WriteCause(w.written[metric][node], next, now) == "" {
			continue
		}

		w.written[metric][node] = next
		w.env.Annotate(node, map[string]string{name: w.format.Load(next)})
	}
}
