// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// run is the state of a running scenario.
type run struct {
	scenario    *Scenario
	policy      qos.Policy
	state       qos.State
	pods        []*pod
	metrics     map[string]float64
	lostMetrics map[string]bool
	now         time.Time // without clockOffset
	clockOffset time.Duration
	frozen      bool

	used       demand
	disks      qos.DiskRates // of all pods
	measuredAt time.Time     // of the last measurement
	measured   map[string]measurement
	rng        *rand.Rand
	avoided    bool

	evicted []string
	graces  map[string]time.Duration
	reasons map[string]bool
	log     []Entry
	phases  map[string]qos.Phase
}

// Entry is a log entry.
type Entry struct {
	At   time.Duration
	Text string
}

// Outcome is the result of a scenario.
type Outcome struct {
	// Log holds the entries in order.
	Log []Entry
	// Failed lists the failed expectations with their lines.
	Failed []string
	// Evicted lists the evicted pods in order.
	Evicted []string
}

// Run runs the scenario from its start.
func (s *Scenario) Run() (Outcome, error) {
	r := &run{
		scenario:    s,
		policy:      s.policy,
		now:         startTime(),
		metrics:     map[string]float64{},
		lostMetrics: map[string]bool{},
		measured:    map[string]measurement{},
		rng:         rand.New(rand.NewPCG(1, 1)),
		graces:      map[string]time.Duration{},
		reasons:     map[string]bool{},
		phases:      map[string]qos.Phase{},
	}

	r.policy.Rules = slices.Clone(s.policy.Rules)
	// Pods and rules are copied, so that the scenario can run again.
	for _, p := range s.pods {
		clone := *p
		r.pods = append(r.pods, &clone)
	}

	events := slices.Clone(s.events)
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	expects := slices.Clone(s.expectations)
	slices.SortStableFunc(expects, func(a, b expectation) int { return int(a.at - b.at) })

	var out Outcome
	check := func(e expectation) {
		if wrong := e.check(r); wrong != "" {
			out.Failed = append(out.Failed, fmt.Sprintf("line %d: expect %s: %s", e.line, e.text, wrong))
		}
	}

	for elapsed := time.Duration(0); elapsed <= s.length; elapsed += s.interval {
		r.now = startTime().Add(elapsed)
		for len(events) > 0 && events[0].at <= elapsed {
			if err := events[0].do(r); err != nil {
				return out, fmt.Errorf("line %d: %w", events[0].line, err)
			}

			events = events[1:]
		}

		if s.drive != nil {
			s.drive(r, elapsed)
		}

		r.tick(elapsed)
		for len(expects) > 0 && expects[0].at <= elapsed {
			if !expects[0].end {
				check(expects[0])
			}
			expects = expects[1:]
		}
	}

	for _, e := range s.expectations {
		if e.end {
			check(e)
		}
	}

	out.Log = r.log
	out.Evicted = r.evicted
	return out, nil
}

func (r *run) tick(elapsed time.Duration) {
	r.removeEnded()
	r.simulateUse()
	o := r.observe()
	plan := qos.Decide(&r.policy, &o, &r.state)
	r.apply(plan, elapsed)
}

// removeEnded removes pods whose termination is over.
func (r *run) removeEnded() {
	r.pods = slices.DeleteFunc(r.pods, func(p *pod) bool { return p.Terminating && !r.now.Before(p.endsAt) })
}

// simulateUse computes the use of all pods and divides CPU by demand if there is not enough.
func (r *run) simulateUse() {
	total := r.scenario.system
	for _, p := range r.pods {
		total.cpu += units.MilliCPU(min(qos.Quota(p.demand.cpu), p.quota))
		total.memory += p.usedMemory()
		total.disks += p.demand.diskRates(1).Work()
	}

	share := 1.0
	if total.cpu > r.scenario.node.CPUs {
		share = float64(r.scenario.node.CPUs) / float64(total.cpu)
	}

	served := 1.0
	if r.scenario.disks > 0 && total.disks > r.scenario.disks {
		served = float64(r.scenario.disks / total.disks)
	}

	r.used = demand{cpu: min(total.cpu, r.scenario.node.CPUs), memory: min(total.memory, r.scenario.node.Memory), disks: total.disks * qos.DiskWork(served)}
	// A frozen agent keeps its last measurements while the node goes on.
	if r.frozen {
		return
	}

	r.measuredAt = r.clock()
	clear(r.measured)

	r.disks = qos.DiskRates{}
	for _, p := range r.pods {
		r.measured[p.UID] = r.measure(p, float64(min(qos.Quota(p.demand.cpu), p.quota))*share, served, total.memory)
		rates := r.measured[p.UID].diskRates
		r.disks.Reads += rates.Reads
		r.disks.ReadBytes += rates.ReadBytes
		r.disks.WriteBytes += rates.WriteBytes
	}
}

// stallStart is the share of memory in use from which pods stall for memory.
const stallStart = 0.95

// measure returns the measurement of a pod that gets the given CPU and share of its disk demand on a node with the given memory demand.
func (r *run) measure(p *pod, cpu, served float64, memory units.Bytes) measurement {
	used := p.usedMemory()
	m := measurement{demand: demand{cpu: units.MilliCPU(math.Round(cpu)), memory: used}, diskRates: p.demand.diskRates(served)}
	m.usage = used + min(p.cache, units.Bytes(p.high)-used)

	waited := 0.0
	if p.demand.cpu > 0 {
		waited = 1 - cpu/float64(p.demand.cpu)
	}
	if qos.Quota(p.demand.cpu) > p.quota {
		m.throttled = 1
	}

	calm := float64(p.stall) + float64(p.noise)*r.rng.Float64()
	m.stalledCPU = units.Ratio(min(calm+(1-calm)*waited, 1))
	if m.diskRates.Work() > 0 {
		m.stalledDisks = units.Ratio(min(calm+(1-calm)*(1-served), 1))
	}

	m.stalledMemory = units.Ratio(min(max(float64(memory)/float64(r.scenario.node.Memory)-stallStart, 0)/(1-stallStart), 1))
	if p.demand.memory > used {
		m.stalledMemory = 1 // It is slowed down until memory of its own is reclaimed.
	}

	return m
}

// usedMemory returns the pod's memory: its demand up to its limit.
func (p *pod) usedMemory() units.Bytes { return min(p.demand.memory, units.Bytes(p.high)) }

// clock returns the node's time, which may be wrong.
func (r *run) clock() time.Time { return r.now.Add(r.clockOffset) }

func (r *run) observe() qos.Observation {
	o := qos.Observation{
		At:      r.clock(),
		Node:    r.scenario.node,
		Samples: map[string][]qos.Sample{},
		Pods:    make([]qos.Pod, 0, len(r.pods)),
	}

	o.Node.Avoided = r.avoided
	cpu := float64(r.used.cpu)
	memory := float64(r.used.memory)
	for name, v := range map[string]float64{
		"cpu_total_usage": cpu, "cpu_total_utilization": 100 * cpu / float64(r.scenario.node.CPUs), "node_cpu_usage_cores": cpu / 1000,
		"memory_total_usage": memory, "memory_total_utilization": 100 * memory / float64(r.scenario.node.Memory),
		"node_disk_read_bytes_per_second": r.disks.ReadBytes, "node_disk_write_bytes_per_second": r.disks.WriteBytes,
		"disk_read_kibps": r.disks.ReadBytes / 1024, "disk_write_kibps": r.disks.WriteBytes / 1024, "disk_read_iops": r.disks.Reads,
	} {
		r.sample(&o, name, v)
	}

	if r.scenario.disks > 0 {
		r.sample(&o, "node_disk_busy_ratio", min(float64(r.used.disks/r.scenario.disks), 1))
	}

	for name, v := range r.metrics {
		r.sample(&o, name, v)
	}

	o.Node.UsedCPU = qos.Measurement[units.MilliCPU]{Value: r.used.cpu, At: r.measuredAt}
	o.Node.UsedMemory = qos.Measurement[units.Bytes]{Value: r.used.memory, At: r.measuredAt}
	for _, p := range r.pods {
		seen := p.Pod
		c := qos.Container{
			ID:      "id-of-" + p.name(),
			Name:    "main",
			Request: p.request,
			Limit:   p.limit,
			Quota:   p.quota,
		}

		// Only the spec of an unmeasured pod is known.
		if m, ok := r.measured[p.UID]; ok && !p.unmeasured && !r.lostMetrics["pods"] {
			seen.UsedCPU = qos.Measurement[units.MilliCPU]{Value: m.cpu, At: r.measuredAt}
			seen.UsedMemory = qos.Measurement[units.Bytes]{Value: m.memory, At: r.measuredAt}

			seen.StalledCPU = qos.Measurement[units.Ratio]{Value: m.stalledCPU, At: r.measuredAt}
			seen.StalledMemory = qos.Measurement[units.Ratio]{Value: m.stalledMemory, At: r.measuredAt}
			if r.scenario.node.DiskUsageUnavailable == "" {
				seen.DiskRates = m.diskRates
				seen.UsedDisks = qos.Measurement[qos.DiskWork]{Value: m.diskRates.Work(), At: r.measuredAt}
			}

			seen.StalledDisks = qos.Measurement[units.Ratio]{Value: m.stalledDisks, At: r.measuredAt}
			seen.Throttled = qos.Measurement[units.Ratio]{Value: m.throttled, At: r.measuredAt}
			c.UsedCPU = seen.UsedCPU
			c.MemoryHigh = p.high
			c.WorkingSet = seen.UsedMemory
			c.MemoryUsage = qos.Measurement[units.Bytes]{Value: m.usage, At: r.measuredAt}
		}

		seen.Containers = []qos.Container{c}
		o.Pods = append(o.Pods, seen)
	}

	return o
}

func (r *run) sample(o *qos.Observation, name string, v float64) {
	if !r.lostMetrics[name] {
		o.Samples[name] = []qos.Sample{{Value: v, At: r.measuredAt}}
	}
}

func (r *run) apply(plan qos.Plan, elapsed time.Duration) {
	logf := func(format string, args ...any) {
		r.log = append(r.log, Entry{At: elapsed, Text: fmt.Sprintf(format, args...)})
	}
	for _, f := range plan.Rules {
		if f.Reason != "" {
			r.reasons[f.Reason] = true
		}

		if r.phases[f.Rule] != f.Phase && f.Phase != qos.Rising {
			logf("rule %s: %s, %s, threshold %s", f.Rule, f.Phase, qos.FormatValue(f.Value, f.Unit), qos.FormatValue(f.Threshold, f.Unit))
			r.phases[f.Rule] = f.Phase
		}
	}

	for _, p := range plan.Previews {
		for _, t := range p.Throttles {
			logf("preview: would limit %s to %s: %s", t.Pod, t.To, t.Reason)
			r.reasons["preview: would limit "+t.Pod.String()] = true
		}

		for _, t := range p.MemoryThrottles {
			logf("preview: would limit the memory of %s to %s: %s", t.Pod, t.To, t.Reason)
			r.reasons["preview: would limit the memory of "+t.Pod.String()] = true
		}

		for _, e := range p.Evictions {
			logf("preview: would evict %s: %s", e.Pod, e.Reason)
			r.reasons["preview: would evict "+e.Pod.String()] = true
		}
	}

	if plan.Avoid.Change {
		r.avoided = plan.Avoid.Desired
		word := "welcomes new pods again"
		if r.avoided {
			word = "keeps new pods away"
		}

		logf("the node %s: %s", word, plan.Avoid.Reason)
	}

	// Executed actions are recorded as the agent records them.
	for _, t := range plan.Throttles {
		p := r.findPod(t.Pod.String())
		p.quota = t.To
		r.state.RecordThrottle(t)
		r.reasons[t.Reason] = true
		logf("limit of %s: %s, was %s: %s", t.Pod, t.To, t.From, t.Reason)
	}

	for _, t := range plan.MemoryThrottles {
		r.findPod(t.Pod.String()).high = t.To
		r.state.RecordMemoryThrottle(t)
		r.reasons[t.Reason] = true
		logf("limit of memory of %s: %s, was %s: %s", t.Pod, t.To, t.From, t.Reason)
	}

	for _, e := range plan.Evictions {
		r.evict(e, logf)
	}
}

func (r *run) evict(e qos.Eviction, logf func(string, ...any)) {
	p := r.findPod(e.Pod.String())
	if p.protected {
		r.state.RecordRefusal(e.Pod, r.clock())
		logf("eviction of %s is refused by a disruption budget", e.Pod)
		return
	}

	grace := p.Grace
	if e.GraceOverride != nil {
		grace = *e.GraceOverride
	}

	p.Terminating = true
	p.Grace = grace
	p.endsAt = r.now.Add(min(p.endsAfter, grace))
	if p.endsAfter < 0 {
		p.endsAt = r.now.Add(maxLength) // It never ends.
	}

	r.state.RecordEviction(e.Pod, r.clock(), grace)
	r.evicted = append(r.evicted, e.Pod.String())
	r.graces[e.Pod.String()] = grace
	r.reasons[e.Reason] = true
	logf("evicts %s: %s", e.Pod, e.Reason)
}

func (r *run) findPod(name string) *pod {
	for _, p := range r.pods {
		if p.name() == name {
			return p
		}
	}

	return nil
}

// restart replaces the agent: limits are reset and baselines are kept.
func (r *run) restart() {
	for _, p := range r.pods {
		p.resetLimits()
	}

	usual := r.state.Baselines()
	r.state = qos.State{}
	r.state.RestoreBaselines(usual)
}

func (r *run) changePod(name string, words []string) error {
	if p := r.findPod(name); p != nil {
		return forEachSetting(words, p.set)
	}

	p, err := newPod(name, words)
	if err == nil {
		p.Started = r.clock()
		r.pods = append(r.pods, p)
	}

	return err
}

func (r *run) deletePod(name string) error {
	if r.findPod(name) == nil {
		return fmt.Errorf("there is no pod %s", name)
	}

	r.pods = slices.DeleteFunc(r.pods, func(p *pod) bool { return p.name() == name })
	return nil
}

func (r *run) deleteRule(rule string) error {
	before := len(r.policy.Rules)
	r.policy.Rules = slices.DeleteFunc(r.policy.Rules, func(q qos.Rule) bool { return strings.EqualFold(q.Name, rule) })
	if len(r.policy.Rules) == before {
		return fmt.Errorf("there is no rule %s", rule)
	}

	return nil
}

// resizeQuota sets a limit as the kubelet does.
func (r *run) resizeQuota(name string, q qos.Quota) error {
	p := r.findPod(name)
	if p == nil {
		return fmt.Errorf("there is no pod %s", name)
	}

	p.quota = q
	p.limit = units.MilliCPU(q)
	return nil
}
