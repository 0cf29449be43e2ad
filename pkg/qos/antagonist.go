// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/pkg/series"
)

// Interference is what is known of a pod that waits more than usual.
type Interference struct {
	Of Resource
	// Victim is the latency-sensitive pod, Sensitive why it is one.
	Victim    PodRef
	Sensitive string
	// Waits is the share of time that it waits, Usual its median in calm times, Deviation how far these scatter.
	Waits, Usual, Deviation series.Ratio
	// Antagonist is who is likely to be the cause, of those that the rule's action may be taken on; empty where nobody is. Rise is how much
	// more than usual it uses, Uses how much, in millicores, bytes or DiskWork.
	Antagonist PodRef
	Rise, Uses float64
	// Own says why it is no interference; empty where it is.
	Own string
}

// String says it with its numbers.
func (i Interference) String() string {
	text := fmt.Sprintf("%s (%s) waits %.1f %% of the time for %s, usually %.1f %% ± %.1f %%", i.Victim, i.Sensitive, 100*i.Waits, i.Of, 100*i.Usual, 100*i.Deviation)
	switch {
	case i.Own != "":
		return text + "; no interference: " + i.Own
	case i.Antagonist == PodRef{}:
		return text + "; no pod that may be touched can be the cause"
	case i.Rise > 0:
		return text + fmt.Sprintf("; %s uses %s, %s more than usual", i.Antagonist, i.Of.format(i.Uses), i.Of.format(i.Rise))
	}
	return text + fmt.Sprintf("; nobody's use rose with it, %s uses the most: %s", i.Antagonist, i.Of.format(i.Uses))
}

// victims are those of a rule's action. Where a pod is interfered with, those whose use rose with it come first, most of it first; where
// nobody's did, who uses the most does. The pod itself, and latency-sensitive pods that are as important, are none of them.
func (d *decision) victims(r *Rule, f *Finding, by Criterion) []*Pod {
	list := victims(d.o, r.Action.Name, by)
	if by == ByDiskWait {
		// Who waits may be the cause or who suffers from it.
		list = slices.DeleteFunc(list, func(p *Pod) bool { return p.Sensitive != "" })
	}
	list = slices.DeleteFunc(list, func(p *Pod) bool { return !d.s.rules[r.Name].metric.counts(p) })
	if above := d.above(r); len(above) > 0 {
		slices.SortStableFunc(list, func(a, b *Pod) int { return first(above[a.UID], above[b.UID]) })
	}
	v := d.interfered(r)
	if v == nil {
		return list
	}
	of := interferes(r.Metric)
	list = slices.DeleteFunc(list, func(p *Pod) bool {
		return p.UID == v.pod.UID || p.Sensitive != "" && p.Priority >= v.pod.Priority
	})
	least := d.o.leastRise(of, r.MaxAge)
	rise := make(map[string]float64, len(list))
	anybody := false
	for _, p := range list {
		if by := d.s.detector.rise(of.index(), p, d.o.At, r.MaxAge); by >= least && !p.Terminating {
			rise[p.UID], anybody = by, true
		}
	}
	if of == Disks {
		// What can be done is to evict, and who does no more than usual is not the cause.
		list = slices.DeleteFunc(list, func(p *Pod) bool { return rise[p.UID] == 0 })
	}
	slices.SortStableFunc(list, func(a, b *Pod) int {
		if anybody {
			return cmp.Compare(rise[b.UID], rise[a.UID])
		}
		return cmp.Compare(d.used(b, of, r), d.used(a, of, r))
	})
	if f.Interference == nil {
		return list
	}
	if i := slices.IndexFunc(list, func(p *Pod) bool { return !p.Terminating && d.used(p, of, r) > 0 }); i >= 0 {
		p := list[i]
		f.Interference.Antagonist, f.Interference.Rise, f.Interference.Uses = p.ref(), rise[p.UID], d.used(p, of, r)
	}
	return list
}

// counts tells whether a pod is a part of what a rule's metric counts, so that something taken from it can lower that.
func (m Metric) counts(p *Pod) bool {
	if m.Held != None {
		return p.holds(m.Held)
	}
	return !m.elastic || p.Elastic
}

// above are the pods that are above a rule's value, by UID; none where its metric is not what each pod uses itself.
func (d *decision) above(r *Rule) map[string]bool {
	if !d.s.rules[r.Name].metric.own {
		return nil
	}
	out := map[string]bool{}
	samples, _ := d.o.samples(r.Metric)
	for _, s := range samples {
		if s.Value > r.Above && s.fresh(d.o.At, r.MaxAge) && (r.Selects == nil || r.Selects(s.Labels)) {
			out[s.Labels[labelPod]] = true
		}
	}
	return out
}

// labelPod is the label that says of which pod a series is, by its UID.
const labelPod = "PodUid"

// used is what a pod uses of a resource, 0 where it is not known.
func (d *decision) used(p *Pod, of Resource, r *Rule) float64 {
	if use, ok := p.use(of, d.o.At, r.MaxAge); ok {
		return use
	}
	return 0
}

// interfered is the pod for whose sake a rule fires, nil for rules on other metrics.
func (d *decision) interfered(r *Rule) *verdict {
	of := interferes(r.Metric)
	if of == None {
		return nil
	}
	if v := d.s.detector.worst(r, of); v != nil && v.by > 0 {
		return v
	}
	return nil
}

// explain says of a rule on interference who is interfered with, or why nobody is who seems to be.
func (d *decision) explain(r *Rule, f *Finding) {
	of := interferes(r.Metric)
	if of == None {
		return
	}
	v := d.s.detector.worst(r, of)
	if v == nil || v.by == 0 && v.own == "" {
		return
	}
	f.Interference = &Interference{
		Of: of, Victim: v.pod.ref(), Sensitive: v.pod.Sensitive, Waits: series.Ratio(v.waits), Usual: series.Ratio(v.usual),
		Deviation: series.Ratio(v.deviation), Own: v.own,
	}
	d.victims(r, f, d.s.rules[r.Name].metric.criterion())
	if f.Why == "" {
		f.Why = f.Interference.String()
	}
}

// detect finds out who is interfered with, where a rule asks for it.
func (d *decision) detect() {
	var age time.Duration
	for i := range d.policy.Rules {
		if r := &d.policy.Rules[i]; interferes(r.Metric) != None {
			age = max(age, r.MaxAge)
		}
	}
	if age == 0 {
		if d.s.detector.unwanted(d.o.At) {
			d.s.detector = nil
		}
		return
	}
	if d.s.detector == nil {
		d.s.detector = &detector{}
	}
	d.s.detector.waits = false
	d.s.detector.look(d.o, age)
	with := *d.o
	with.derived = map[string]derived{}
	for i := range d.policy.Rules {
		metric := d.policy.Rules[i].Metric
		if of := interferes(metric); of != None {
			var found derived
			found.samples, found.why = d.s.detector.samples(of)
			with.derived[metric] = found
		}
	}
	d.o = &with
}

// blame adds to what is done for a pod that is interfered with for whom it is and why.
func (d *decision) blame(f *Finding, throttles []Throttle, memory []MemoryThrottle, evictions []Eviction) {
	if f.Interference == nil {
		return
	}
	if f.Withheld == ByNobody && f.Interference.Antagonist == (PodRef{}) {
		f.withhold(ByNobody, "nobody to evict: "+f.Interference.String())
	}
	for i := range throttles {
		throttles[i].Why += "; " + f.Interference.String()
	}
	for i := range memory {
		memory[i].Why += "; " + f.Interference.String()
	}
	for i := range evictions {
		evictions[i].Why += "; " + f.Interference.String()
	}
}

const (
	// mostRepeats doubles a cool-down of five minutes to more than an hour, which is mostHold.
	mostRepeats = 4
	mostHold    = time.Hour
)

// holdBack is how long what was taken for the sake of a pod that waits is kept after a rule has fired: the cool-down, twice as long each
// time that the rule has fired again soon after it was given back, up to an hour.
func (st *ruleState) holdBack(r *Rule) time.Duration {
	if r.Action.CoolDown >= mostHold {
		return r.Action.CoolDown // The longest there is would overflow.
	}
	return min(r.Action.CoolDown<<st.repeats, mostHold)
}

// again counts that a rule fires: once more where what was taken was given back just before.
func (st *ruleState) again(r *Rule, now time.Time) int {
	if st.lastFired.IsZero() || now.Sub(st.lastFired) > 2*st.holdBack(r) {
		return 0
	}
	return min(st.repeats+1, mostRepeats)
}

// again tells that what was taken for the sake of a pod is not to be given back yet: whoever was the cause would be it again, so that it
// gets it back when the cool-down is over, and not as soon as the pod is calm; and then a step at a time, of which each can be seen.
func (d *decision) again(r *Rule) bool {
	st := d.s.rules[r.Name]
	if interferes(r.Metric) == None || st.lastFired.IsZero() {
		return false
	}
	return d.o.At.Before(st.lastFired.Add(st.holdBack(r))) || absolute(d.o.At.Sub(d.s.gave)) < st.metric.Settle
}
