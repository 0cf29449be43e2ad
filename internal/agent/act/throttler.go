// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// Throttler lowers and restores CPU limits: the container's quota and burst, and its pod's weight. The pod's quota stays: its containers'
// quotas bound it already, and a lower one would keep the successor of a crashed container from starting, because cgroup v1 accepts no
// quota above the parent's. All changes of a pod are one unit of the journal. It is not safe for concurrent use.
type Throttler struct {
	layout  cgroup.Layout
	journal *Journal
	reader  host.Reader
	// throttled are the throttled containers by the pod's cgroup and the container's ID.
	throttled map[string]map[string]throttledContainer
}

// throttledContainer is a container whose quota is lowered.
type throttledContainer struct {
	pod   qos.PodRef
	group string
	// weight is the share of its weight the pod keeps for this container; 0 for all of it.
	weight units.Ratio
}

// NewThrottler returns a throttler without any throttled container.
func NewThrottler(layout cgroup.Layout, journal *Journal) *Throttler {
	return &Throttler{layout: layout, journal: journal, throttled: map[string]map[string]throttledContainer{}}
}

// KindCPU is the kind of units with CPU limits.
const KindCPU = "cpu"

// cpuKey returns the key of a pod's unit; in the first journal version, of a container's.
func cpuKey(id string) string { return KindCPU + "/" + id }

// UndoInherited restores the pods that a previous agent throttled and this one has not throttled since.
func (t *Throttler) UndoInherited() error {
	tracked := make(map[string]bool, len(t.throttled))
	for pod := range t.throttled {
		tracked[cpuKey(filepath.Base(pod))] = true
	}

	return t.journal.UndoUnless(func(key string) bool { return !strings.HasPrefix(key, KindCPU+"/") || tracked[key] })
}

// Throttle executes a throttle on a container's cgroup. A removed cgroup is no error.
func (t *Throttler) Throttle(plan qos.Throttle, group string) error {
	pod := filepath.Dir(group)
	key := cpuKey(filepath.Base(pod))
	if err := ResetScaled(t.journal, key, group); err != nil {
		return err
	}

	now, burst, err := t.layout.ReadLimit(&t.reader, group)
	if errors.Is(err, host.ErrGone) {
		return t.release(plan.Pod, plan.ContainerID, pod, nil)
	}
	if err != nil {
		return fmt.Errorf("reading the CPU limit: %w", err)
	}

	original, err := t.originalLimit(key, group, now.Period)
	if err != nil {
		return err
	}

	next := cgroup.NewBandwidth(units.MilliCPU(plan.To), now.Period)
	restores := plan.To == plan.Original || plan.To == qos.Unlimited
	// A kubelet may have set a lower limit since.
	if restores || next.Cores() > original.Cores() && !original.Unlimited() {
		next = original
	}

	changes, err := t.containerChanges(key, group, next, burst)
	if err != nil {
		return err
	}

	if restores {
		return t.release(plan.Pod, plan.ContainerID, pod, changes)
	}

	if t.throttled[pod] == nil {
		t.throttled[pod] = map[string]throttledContainer{}
	}

	before, tracked := t.throttled[pod][plan.ContainerID]
	t.throttled[pod][plan.ContainerID] = throttledContainer{pod: plan.Pod, group: group, weight: plan.Weight}
	if err = t.applyChanges(plan.Pod, pod, changes); err != nil {
		delete(t.throttled[pod], plan.ContainerID)

		if tracked {
			t.throttled[pod][plan.ContainerID] = before
		}
	}

	return err
}

// RestoreResult is the result of restoring a pod's limits for a container.
type RestoreResult struct {
	Pod         qos.PodRef
	ContainerID string
	Err         error
}

// RestoreUntracked restores the limits of pods for containers that are no longer throttled although they were not restored, because
// another process changed their limit or they are gone. Failures are retried on the next call.
func (t *Throttler) RestoreUntracked(throttled func(containerID string) bool) []RestoreResult {
	var out []RestoreResult
	for pod, containers := range t.throttled {
		for id, c := range containers {
			if !throttled(id) || t.IsGone(c.group) {
				out = append(out, RestoreResult{c.pod, id, t.release(c.pod, id, pod, nil)})
			}
		}
	}

	return out
}

// IsGone reports whether a container's cgroup does not exist (any more).
func (t *Throttler) IsGone(group string) bool {
	quota, _ := t.layout.LimitFiles(group)
	_, err := os.Stat(quota)
	return errors.Is(err, fs.ErrNotExist)
}

// release restores a container, and its pod's weight by as much.
func (t *Throttler) release(podRef qos.PodRef, containerID, podGroup string, changes []Change) error {
	before, tracked := t.throttled[podGroup][containerID]
	delete(t.throttled[podGroup], containerID)
	t.forgetGone(podGroup)

	var err error
	if len(t.throttled[podGroup]) == 0 {
		delete(t.throttled, podGroup)
		err = t.journal.Undo(cpuKey(filepath.Base(podGroup)))
	} else {
		err = t.applyChanges(podRef, podGroup, changes)
	}

	if err != nil && tracked {
		if t.throttled[podGroup] == nil {
			t.throttled[podGroup] = map[string]throttledContainer{}
		}
		t.throttled[podGroup][containerID] = before
	}

	return err
}

// forgetGone forgets the containers of a pod whose cgroup is gone: a successor has its full weight until it is throttled itself.
func (t *Throttler) forgetGone(podGroup string) {
	maps.DeleteFunc(t.throttled[podGroup], func(_ string, c throttledContainer) bool { return t.IsGone(c.group) })
}

// applyChanges writes the changes of a container and its pod. An earlier version lowered the pod's quota, which must be restored before the
// container's is raised: on cgroup v1 a child may not exceed its parent.
func (t *Throttler) applyChanges(podRef qos.PodRef, podGroup string, container []Change) error {
	key := cpuKey(filepath.Base(podGroup))
	t.forgetGone(podGroup)

	weight, err := t.weightChange(key, podGroup)
	if err != nil {
		return err
	}

	changes := append(t.podQuotaChange(key, podGroup), container...)
	return t.journal.Change(Unit{Key: key, Subject: podRef.String(), Changes: append(changes, weight...)})
}

// podQuotaChange returns the change that restores a pod's quota lowered by an earlier version; none usually.
func (t *Throttler) podQuotaChange(key, podGroup string) []Change {
	names := cpuLimitFiles(t.layout.Version)
	entry, _ := t.journal.Entry(key)
	record := entry.record(podGroup, names.quota)
	if record == nil || record.Set == record.Original {
		return nil
	}

	original, err := t.journal.Original(key, podGroup, names.quota)
	if err != nil {
		return nil // The container's change reports the error of a pod that cannot be read.
	}

	return []Change{{Group: podGroup, File: names.quota, Value: original}}
}

// containerChanges returns the changes to another limit. The kernel accepts no burst above the quota, and before 5.14 it has no
// burst.
func (t *Throttler) containerChanges(key, group string, next cgroup.Bandwidth, burst time.Duration) ([]Change, error) {
	names := cpuLimitFiles(t.layout.Version)
	changes := QuotaChanges(t.layout.Version, group, next)

	text, err := t.journal.Original(key, group, names.burst)
	if errors.Is(err, host.ErrGone) {
		return changes, nil
	}
	if err != nil {
		return nil, err
	}

	original, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", names.burst, err)
	}

	// A smaller burst is written before the quota, a larger one after it.
	to := time.Duration(original) * time.Microsecond
	if !next.Unlimited() {
		to = min(to, next.Quota)
	}

	change := Change{Group: group, File: names.burst, Value: micros(to)}
	if to < burst {
		return append([]Change{change}, changes...), nil
	}

	return append(changes, change), nil
}

// weightChange returns the change of a pod's weight to the largest share that one of its throttled containers keeps. Idle cgroups have no
// weight.
func (t *Throttler) weightChange(key, pod string) ([]Change, error) {
	keep := units.Ratio(0)
	for _, c := range t.throttled[pod] {
		if c.weight == 0 {
			keep = 1 // A container with a claim to its full weight.
		}

		keep = max(keep, c.weight)
	}

	// The kernel rejects values below the minimum.
	file := cgroup.FileWeight

	minWeight := 1.0
	if t.layout.Version != cgroup.V2 {
		file = cgroup.FileSharesV1
		minWeight = 2
	}

	idle, err := t.journal.Original(key, pod, cgroup.FileIdle)
	if err != nil && !errors.Is(err, host.ErrGone) {
		return nil, err
	}

	text, err := t.journal.Original(key, pod, file)
	if errors.Is(err, host.ErrGone) || idle == "1" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	original, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}

	to := max(float64(original)*float64(keep), minWeight)
	if to >= float64(original) {
		to = float64(original)
	}

	return []Change{{Group: pod, File: file, Value: strconv.FormatUint(uint64(to+0.5), 10)}}, nil
}

// originalLimit returns the limit that undoing restores to a cgroup.
func (t *Throttler) originalLimit(key, group string, period time.Duration) (cgroup.Bandwidth, error) {
	names := cpuLimitFiles(t.layout.Version)
	text, err := t.journal.Original(key, group, names.quota)
	if err != nil {
		return cgroup.Bandwidth{}, err
	}

	return names.parseLimit(text, period)
}

// CurrentLimit returns the CPU limit of a group as a unit sees it, like Current.
func CurrentLimit(j *Journal, key, group string) (cgroup.Bandwidth, error) {
	now, _, err := j.files.layout.ReadLimit(&host.Reader{}, group)
	if err != nil {
		return now, err
	}

	names := cpuLimitFiles(j.files.layout.Version)
	text, err := j.Current(key, group, names.quota)
	if err != nil {
		return now, err
	}

	return names.parseLimit(text, now.Period)
}

// limitFiles are the files of a CPU limit.
type limitFiles struct {
	quota, burst string
	v2           bool
}

func cpuLimitFiles(v cgroup.Version) limitFiles {
	if v == cgroup.V2 {
		return limitFiles{quota: cgroup.FileMax, burst: cgroup.FileMaxBurst, v2: true}
	}

	return limitFiles{quota: cgroup.FileQuotaV1, burst: cgroup.FileBurstV1}
}

// QuotaChanges returns the changes that set a group's CPU limit. On v1 the quota applies to a period in a file of its own, which is watched.
func QuotaChanges(v cgroup.Version, group string, limit cgroup.Bandwidth) []Change {
	names := cpuLimitFiles(v)
	changes := []Change{{Group: group, File: names.quota, Value: names.format(limit)}}
	if !names.v2 {
		changes = append(changes, Change{
			Group:     group,
			File:      cgroup.FilePeriodV1,
			Value:     micros(limit.Period),
			Condition: true,
		})
	}

	return changes
}

// parseLimit parses the content of a quota file. On v1 the period is in another file.
func (f limitFiles) parseLimit(text string, period time.Duration) (cgroup.Bandwidth, error) {
	if f.v2 {
		b, err := cgroup.ParseCPUMax([]byte(text + "\n"))
		if err != nil {
			return b, fmt.Errorf("%s: %w", f.quota, err)
		}

		return b, nil
	}

	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return cgroup.Bandwidth{}, fmt.Errorf("%s: %w", f.quota, err)
	}

	return cgroup.Bandwidth{Quota: time.Duration(n) * time.Microsecond, Period: period}, nil
}

// format formats a limit for its file.
func (f limitFiles) format(b cgroup.Bandwidth) string {
	text := micros(b.Quota)
	switch {
	case f.v2 && b.Unlimited():
		text = "max"
	case b.Unlimited():
		text = "-1"
	}

	if f.v2 {
		text += " " + micros(b.Period)
	}

	return text
}

func micros(d time.Duration) string { return strconv.FormatInt(int64(d/time.Microsecond), 10) }
