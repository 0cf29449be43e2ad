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
	"crane.io/crane/pkg/series"
)

// run is a scenario that is played.
type run struct {
	s      *Scenario
	policy qos.Policy
	state  qos.State
	pods   []*pod
	given  map[string]float64
	lost   map[string]bool
	now    time.Time // without shift
	shift  time.Duration
	frozen bool

	used     demand
	disks    qos.DiskRates // of all pods
	at       time.Time     // of the last measurement
	measured map[string]measurement
	rng      *rand.Rand
	avoided  bool

	evicted []string
	graces  map[string]time.Duration
	reasons map[string]bool
	log     []Entry
	phases  map[string]qos.Phase
}

// Entry is something that happened.
type Entry struct {
	At   time.Duration
	Text string
}

// Outcome is how a scenario went.
type Outcome struct {
	// Log is what happened, in order.
	Log []Entry
	// Failed are expectations that did not hold, each with its line.
	Failed []string
	// Evicted are the pods that were evicted, in order.
	Evicted []string
}

// Run plays the scenario from its start.
func (s *Scenario) Run() (Outcome, error) {
	r := &run{
		s: s, policy: s.policy, now: start(), given: map[string]float64{}, lost: map[string]bool{}, measured: map[string]measurement{},
		rng:    rand.New(rand.NewPCG(1, 1)),
		graces: map[string]time.Duration{}, reasons: map[string]bool{}, phases: map[string]qos.Phase{},
	}
	r.policy.Rules = slices.Clone(s.policy.Rules)
	for _, p := range s.pods {
		made := *p
		r.pods = append(r.pods, &made)
	}
	events := slices.Clone(s.events)
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	expects := slices.Clone(s.expect)
	slices.SortStableFunc(expects, func(a, b expectation) int { return int(a.at - b.at) })
	var out Outcome
	check := func(e expectation) {
		if wrong := e.holds(r); wrong != "" {
			out.Failed = append(out.Failed, fmt.Sprintf("line %d: expect %s: %s", e.line, e.text, wrong))
		}
	}
	for elapsed := time.Duration(0); elapsed <= s.length; elapsed += s.every {
		r.now = start().Add(elapsed)
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
	for _, e := range s.expect {
		if e.end {
			check(e)
		}
	}
	out.Log, out.Evicted = r.log, r.evicted
	return out, nil
}

func (r *run) tick(elapsed time.Duration) {
	r.end()
	r.work()
	o := r.observe()
	plan := qos.Decide(&r.policy, &o, &r.state)
	r.carryOut(plan, elapsed)
}

// end lets pods go that have had their time.
func (r *run) end() {
	r.pods = slices.DeleteFunc(r.pods, func(p *pod) bool { return p.Terminating && !r.now.Before(p.endsAt) })
}

// work lets everybody use what they want and may, and shares cpu by what they want where there is not enough.
func (r *run) work() {
	total := r.s.system
	for _, p := range r.pods {
		total.cpu += series.MilliCPU(min(qos.Quota(p.wants.cpu), p.quota))
		total.memory += p.memory()
		total.disks += p.wants.diskRates(1).Work()
	}
	share := 1.0
	if total.cpu > r.s.node.CPUs {
		share = float64(r.s.node.CPUs) / float64(total.cpu)
	}
	served := 1.0
	if r.s.disks > 0 && total.disks > r.s.disks {
		served = float64(r.s.disks / total.disks)
	}
	r.used = demand{cpu: min(total.cpu, r.s.node.CPUs), memory: min(total.memory, r.s.node.Memory), disks: total.disks * qos.DiskWork(served)}
	if r.frozen {
		return
	}
	r.at = r.clock()
	clear(r.measured)
	r.disks = qos.DiskRates{}
	for _, p := range r.pods {
		r.measured[p.UID] = r.measure(p, float64(min(qos.Quota(p.wants.cpu), p.quota))*share, served, total.memory)
		did := r.measured[p.UID].diskRates
		r.disks.Reads, r.disks.ReadBytes, r.disks.WriteBytes = r.disks.Reads+did.Reads, r.disks.ReadBytes+did.ReadBytes, r.disks.WriteBytes+did.WriteBytes
	}
}

// crowded is the share of a node's memory in use from which on everybody waits for it.
const crowded = 0.95

// measure is what a pod shows that gets cpu, and a share of what it wants of disks, on a node of which so much memory is wanted.
func (r *run) measure(p *pod, cpu, served float64, memory series.Bytes) measurement {
	used := p.memory()
	m := measurement{demand: demand{cpu: series.MilliCPU(math.Round(cpu)), memory: used}, diskRates: p.wants.diskRates(served)}
	m.held = used + min(p.cache, series.Bytes(p.high)-used)
	waited := 0.0
	if p.wants.cpu > 0 {
		waited = 1 - cpu/float64(p.wants.cpu)
	}
	if qos.Quota(p.wants.cpu) > p.quota {
		m.throttled = 1
	}
	calm := float64(p.stall) + float64(p.noise)*r.rng.Float64()
	m.stalledCPU = series.Ratio(min(calm+(1-calm)*waited, 1))
	if m.diskRates.Work() > 0 {
		m.stalledDisks = series.Ratio(min(calm+(1-calm)*(1-served), 1))
	}
	m.stalledMemory = series.Ratio(min(max(float64(memory)/float64(r.s.node.Memory)-crowded, 0)/(1-crowded), 1))
	if p.wants.memory > used {
		m.stalledMemory = 1 // It sleeps until something of its own can be reclaimed.
	}
	return m
}

// memory is what a pod uses: what it wants, up to its limit.
func (p *pod) memory() series.Bytes { return min(p.wants.memory, series.Bytes(p.high)) }

// clock is the node's, which may be wrong.
func (r *run) clock() time.Time { return r.now.Add(r.shift) }

func (r *run) observe() qos.Observation {
	o := qos.Observation{At: r.clock(), Node: r.s.node, Samples: map[string][]qos.Sample{}, Pods: make([]qos.Pod, 0, len(r.pods))}
	o.Node.Avoided = r.avoided
	cpu, memory := float64(r.used.cpu), float64(r.used.memory)
	for name, v := range map[string]float64{
		"cpu_total_usage": cpu, "cpu_total_utilization": 100 * cpu / float64(r.s.node.CPUs), "node_cpu_usage_cores": cpu / 1000,
		"memory_total_usage": memory, "memory_total_utilization": 100 * memory / float64(r.s.node.Memory),
		"node_disk_read_bytes_per_second": r.disks.ReadBytes, "node_disk_write_bytes_per_second": r.disks.WriteBytes,
		"disk_read_kibps": r.disks.ReadBytes / 1024, "disk_write_kibps": r.disks.WriteBytes / 1024, "disk_read_iops": r.disks.Reads,
	} {
		r.sample(&o, name, v)
	}
	if r.s.disks > 0 {
		r.sample(&o, "node_disk_busy_ratio", min(float64(r.used.disks/r.s.disks), 1))
	}
	for name, v := range r.given {
		r.sample(&o, name, v)
	}
	o.Node.UsedCPU = qos.Measured[series.MilliCPU]{Value: r.used.cpu, At: r.at}
	o.Node.UsedMemory = qos.Measured[series.Bytes]{Value: r.used.memory, At: r.at}
	for _, p := range r.pods {
		seen := p.Pod
		c := qos.Container{ID: "id-of-" + p.name(), Name: "main", Request: p.request, Limit: p.limit, Quota: p.quota}
		if m, ok := r.measured[p.UID]; ok && !p.unmeasured && !r.lost["pods"] {
			seen.UsedCPU = qos.Measured[series.MilliCPU]{Value: m.cpu, At: r.at}
			seen.UsedMemory = qos.Measured[series.Bytes]{Value: m.memory, At: r.at}
			seen.StalledCPU = qos.Measured[series.Ratio]{Value: m.stalledCPU, At: r.at}
			seen.StalledMemory = qos.Measured[series.Ratio]{Value: m.stalledMemory, At: r.at}
			if r.s.node.DisksUncounted == "" {
				seen.DiskRates, seen.UsedDisks = m.diskRates, qos.Measured[qos.DiskWork]{Value: m.diskRates.Work(), At: r.at}
			}
			seen.StalledDisks = qos.Measured[series.Ratio]{Value: m.stalledDisks, At: r.at}
			seen.Throttled = qos.Measured[series.Ratio]{Value: m.throttled, At: r.at}
			c.UsedCPU = seen.UsedCPU
			c.High, c.WorkingSet, c.HeldMemory = p.high, seen.UsedMemory, qos.Measured[series.Bytes]{Value: m.held, At: r.at}
		}
		seen.Containers = []qos.Container{c}
		o.Pods = append(o.Pods, seen)
	}
	return o
}

func (r *run) sample(o *qos.Observation, name string, v float64) {
	if !r.lost[name] {
		o.Samples[name] = []qos.Sample{{Value: v, At: r.at}}
	}
}

func (r *run) carryOut(plan qos.Plan, elapsed time.Duration) {
	logf := func(format string, args ...any) {
		r.log = append(r.log, Entry{At: elapsed, Text: fmt.Sprintf(format, args...)})
	}
	for _, f := range plan.Rules {
		if f.Why != "" {
			r.reasons[f.Why] = true
		}
		if r.phases[f.Rule] != f.Phase && f.Phase != qos.Rising {
			logf("rule %s: %s, %s, threshold %s", f.Rule, f.Phase, qos.Reading(f.Value, f.Unit), qos.Reading(f.Above, f.Unit))
			r.phases[f.Rule] = f.Phase
		}
	}
	for _, p := range plan.Previews {
		for _, t := range p.Throttles {
			logf("preview: would limit %s to %s: %s", t.Pod, t.To, t.Why)
			r.reasons["preview: would limit "+t.Pod.String()] = true
		}
		for _, t := range p.MemoryThrottles {
			logf("preview: would limit the memory of %s to %s: %s", t.Pod, t.To, t.Why)
			r.reasons["preview: would limit the memory of "+t.Pod.String()] = true
		}
		for _, e := range p.Evictions {
			logf("preview: would evict %s: %s", e.Pod, e.Why)
			r.reasons["preview: would evict "+e.Pod.String()] = true
		}
	}
	if plan.Avoid.Change {
		r.avoided = plan.Avoid.Wanted
		word := "welcomes new pods again"
		if r.avoided {
			word = "keeps new pods away"
		}
		logf("the node %s: %s", word, plan.Avoid.Why)
	}
	for _, t := range plan.Throttles {
		p := r.find(t.Pod.String())
		p.quota = t.To
		r.state.Throttled(t)
		r.reasons[t.Why] = true
		logf("limit of %s: %s, was %s: %s", t.Pod, t.To, t.From, t.Why)
	}
	for _, t := range plan.MemoryThrottles {
		r.find(t.Pod.String()).high = t.To
		r.state.MemoryThrottled(t)
		r.reasons[t.Why] = true
		logf("limit of memory of %s: %s, was %s: %s", t.Pod, t.To, t.From, t.Why)
	}
	for _, e := range plan.Evictions {
		r.evict(e, logf)
	}
}

func (r *run) evict(e qos.Eviction, logf func(string, ...any)) {
	p := r.find(e.Pod.String())
	if p.protected {
		r.state.Refused(e.Pod, r.clock())
		logf("eviction of %s is refused by a disruption budget", e.Pod)
		return
	}
	grace := p.Grace
	if e.Grace != nil {
		grace = *e.Grace
	}
	p.Terminating, p.Grace, p.endsAt = true, grace, r.now.Add(min(p.ends, grace))
	if p.ends < 0 {
		p.endsAt = r.now.Add(maxLength) // It does not end at all.
	}
	r.state.Evicted(e.Pod, r.clock(), grace)
	r.evicted, r.graces[e.Pod.String()] = append(r.evicted, e.Pod.String()), grace
	r.reasons[e.Why] = true
	logf("evicts %s: %s", e.Pod, e.Why)
}

func (r *run) find(name string) *pod {
	for _, p := range r.pods {
		if p.name() == name {
			return p
		}
	}
	return nil
}

// restart is another agent: it undoes what the one before has left, and knows what is usual.
func (r *run) restart() {
	for _, p := range r.pods {
		p.unlimit()
	}
	usual := r.state.Baselines()
	r.state = qos.State{}
	r.state.Remember(usual)
}

func (r *run) change(name string, words []string) error {
	if p := r.find(name); p != nil {
		return each(words, p.set)
	}
	p, err := newPod(name, words)
	if err == nil {
		p.Started = r.clock()
		r.pods = append(r.pods, p)
	}
	return err
}

func (r *run) remove(name string) error {
	if r.find(name) == nil {
		return fmt.Errorf("there is no pod %s", name)
	}
	r.pods = slices.DeleteFunc(r.pods, func(p *pod) bool { return p.name() == name })
	return nil
}

func (r *run) drop(rule string) error {
	before := len(r.policy.Rules)
	r.policy.Rules = slices.DeleteFunc(r.policy.Rules, func(q qos.Rule) bool { return strings.EqualFold(q.Name, rule) })
	if len(r.policy.Rules) == before {
		return fmt.Errorf("there is no rule %s", rule)
	}
	return nil
}

// resize is the kubelet setting a limit.
func (r *run) resize(name string, q qos.Quota) error {
	p := r.find(name)
	if p == nil {
		return fmt.Errorf("there is no pod %s", name)
	}
	p.quota, p.limit = q, series.MilliCPU(q)
	return nil
}
