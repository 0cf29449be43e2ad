// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"time"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/effectiverequest"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
)

// check checks the invariants.
func (l *lifeOf) check(when string) {
	entries := append(l.agent.changes.Entries(), l.memory.Entries()...)
	for _, i := range slices.Sorted(maps.Keys(l.pods)) {
		p := l.pods[i]
		granted := effectiverequest.Containers(p.object())
		l.checkGroup(when, p.group, entries, int64(effectiverequest.Pod(p.object()).Request.CPU))
		for _, c := range p.containers {
			l.checkGroup(when, path.Join(p.group, c.id), entries, int64(granted[c.name].Request.CPU))
		}
	}
}

func (l *lifeOf) checkGroup(when, group string, entries []act.Entry, request int64) {
	limit, _, err := l.layout.ReadLimit(&host.Reader{}, group)
	l.must(err)
	for file, kubelets := range l.written[group] {
		if l.refused[group+" "+file] > 0 {
			continue // It is about to be written.
		}

		now, err := l.layout.ReadSetting(&host.Reader{}, group, file)
		l.must(err)

		top, bottom := recordsOf(entries, group, file)
		isQuota := file == cgroup.FileMax || file == cgroup.FileQuotaV1
		switch {
		case cgroup.EqualSettings(file, now, kubelets), isQuota && l.isScaled(limit, kubelets, kubeletPeriod):
		case top != nil && (cgroup.EqualSettings(file, now, top.Set) || cgroup.EqualSettings(file, now, top.Before)):
		case top != nil && isQuota && (l.isScaled(limit, top.Set, periodOf(entries, group)) || l.isScaled(limit, top.Before, periodOf(entries, group))):
		case (file == cgroup.FileWeight || file == cgroup.FileSharesV1) && l.isIdle(group):
		default:
			l.failf("%s: %s of %s is %q, neither the kubelet's %q nor in the journal: %+v", when, file, group, now, kubelets, top)
		}

		if bottom != nil && !cgroup.EqualSettings(file, bottom.Original, kubelets) && cgroup.EqualSettings(file, now, bottom.Set) && !isQuota {
			l.failf("%s: %s of %s would be restored to %q, want the kubelet's %q", when, file, group, bottom.Original, kubelets)
		}

		// The kubelet's own limit may be below what a container may use of its pod's request.
		ofKubelet := cgroup.EqualSettings(file, now, kubelets) || l.isScaled(limit, kubelets, kubeletPeriod)
		if isQuota && !limit.Unlimited() && !ofKubelet && int64(1000*limit.Cores()+1.5) < request && l.ticks%5 == 0 {
			l.failf("%s: the quota of %s is %.0fm, below its effective request of %dm", when, group, 1000*limit.Cores(), request)
		}
	}
}

func (l *lifeOf) isIdle(group string) bool {
	text, err := l.layout.ReadSetting(&host.Reader{}, group, cgroup.FileIdle)
	return err == nil && text == "1"
}

// kubeletPeriod is the period that the kubelet writes.
const kubeletPeriod = 100 * time.Millisecond

// periodOf returns the period in which a throttle set a quota of v1: that of the kubelet, or what the kernel had made of it.
func periodOf(entries []act.Entry, group string) time.Duration {
	out := kubeletPeriod
	for i := range entries {
		for _, f := range entries[i].Files {
			micros, err := strconv.ParseInt(f.Set, 10, 64)
			if f.Group == group && f.File == cgroup.FilePeriodV1 && err == nil {
				out = time.Duration(micros) * time.Microsecond
			}
		}
	}

	return out
}

// isScaled reports whether the kernel made a limit of a value, on v1 of a quota in a period.
func (l *lifeOf) isScaled(now cgroup.Bandwidth, value string, period time.Duration) bool {
	if !l.v1 {
		b, err := cgroup.ParseCPUMax([]byte(value + "\n"))
		return err == nil && now.IsScaled(b)
	}

	quota, err := strconv.ParseInt(value, 10, 64)
	return err == nil && now.IsScaled(cgroup.Bandwidth{Quota: time.Duration(quota) * time.Microsecond, Period: period})
}

// recordsOf returns the records of a file in the units that changed it last and first; nil if none did.
func recordsOf(entries []act.Entry, group, file string) (top, bottom *act.FileRecord) {
	for i := range entries {
		for j := range entries[i].Files {
			f := &entries[i].Files[j]
			if f.Group != group || f.File != file || f.Condition {
				continue
			}

			if bottom == nil {
				bottom = f
			}
			top = f
		}
	}

	return top, bottom
}
