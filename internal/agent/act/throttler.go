// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/series"
)

// Throttler changes limits of containers and puts them back: the container's quota with its burst, and of its pod the quota, by as much,
// and the weight. All of a pod is one unit of the journal. It is not safe for concurrent use.
type Throttler struct {
	layout  cgroup.Layout
	journal *Journal
	reader  host.Reader
	// losses are what is taken now, by the pod's group and the container's id.
	losses map[string]map[string]throttleLoss
}

// throttleLoss is what a container has lost.
type throttleLoss struct {
	// pod is whose it is.
	pod qos.PodRef
	// cores are those that its quota is below the original; 0 where it had none.
	cores float64
	// weight is the share that it lets its pod keep.
	weight series.Ratio
}

// NewThrottler returns a throttler that has undone nothing yet.
func NewThrottler(layout cgroup.Layout, journal *Journal) *Throttler {
	return &Throttler{layout: layout, journal: journal, losses: map[string]map[string]throttleLoss{}}
}

const (
	// minQuota is the least quota that the kernel takes, in microseconds.
	minQuota = 1000
	milli    = 1000
	// kindCPU is the kind of units that are limits of cpu.
	kindCPU = "cpu"
)

// cpuKey is the unit of a pod's group; in the first version of journals it was that of a container.
func cpuKey(id string) string { return kindCPU + "/" + id }

// UndoAll puts back all that is throttled.
func (t *Throttler) UndoAll() error {
	clear(t.losses)
	return t.journal.UndoKind(kindCPU)
}

// Throttle carries a throttle of a plan out on a container's group. A group that is gone is no error, since nothing is left to do.
func (t *Throttler) Throttle(plan qos.Throttle, group string) error {
	pod := filepath.Dir(group)
	now, burst, err := t.layout.ReadLimit(&t.reader, group)
	if errors.Is(err, host.ErrGone) {
		return t.release(plan.Pod, plan.ContainerID, pod, nil)
	}
	if err != nil {
		return fmt.Errorf("limit of cpu: %w", err)
	}
	key := cpuKey(filepath.Base(pod))
	original, err := t.originalLimit(key, group, now.Period)
	if err != nil {
		return err
	}
	next := cgroup.Bandwidth{Quota: max(time.Duration(float64(plan.To)*float64(now.Period)/milli), minQuota*time.Microsecond), Period: now.Period}
	back := plan.To == plan.Original || plan.To == qos.Unlimited
	// A kubelet may have set a lower limit since it was decided.
	if back || next.Cores() > original.Cores() && !original.Unlimited() {
		next = original
	}
	changes, err := t.containerChanges(key, group, now, next, burst)
	if err != nil {
		return err
	}
	if back {
		return t.release(plan.Pod, plan.ContainerID, pod, changes)
	}
	if t.losses[pod] == nil {
		t.losses[pod] = map[string]throttleLoss{}
	}
	lost := throttleLoss{pod: plan.Pod, weight: plan.Weight}
	if !original.Unlimited() {
		lost.cores = max(original.Cores()-next.Cores(), 0)
	}
	before, had := t.losses[pod][plan.ContainerID]
	t.losses[pod][plan.ContainerID] = lost
	up := !now.Unlimited() && next.Cores() > now.Cores()
	if err = t.applyChanges(plan.Pod, pod, changes, up); err != nil {
		if delete(t.losses[pod], plan.ContainerID); had {
			t.losses[pod][plan.ContainerID] = before
		}
	}
	return err
}

// RestoreResult is a container of which it was tried to put back what its pod had lost for it.
type RestoreResult struct {
	Pod         qos.PodRef
	ContainerID string
	Err         error
}

// RestoreUntracked puts back what pods have lost for containers that are not throttled any more without having been given anything back: whose limit
// somebody else has changed since, or who are gone. What fails is tried again the next time.
func (t *Throttler) RestoreUntracked(throttled func(containerID string) bool) []RestoreResult {
	var out []RestoreResult
	for pod, containers := range t.losses {
		for id, lost := range containers {
			if !throttled(id) {
				out = append(out, RestoreResult{lost.pod, id, t.release(lost.pod, id, pod, nil)})
			}
		}
	}
	return out
}

// release gives a container all back, and its pod what it has lost for it.
func (t *Throttler) release(of qos.PodRef, containerID, pod string, changes []Change) error {
	before, had := t.losses[pod][containerID]
	delete(t.losses[pod], containerID)
	var err error
	if len(t.losses[pod]) == 0 {
		delete(t.losses, pod)
		err = t.journal.Undo(cpuKey(filepath.Base(pod)))
	} else {
		err = t.applyChanges(of, pod, changes, true)
	}
	if err != nil && had {
		if t.losses[pod] == nil {
			t.losses[pod] = map[string]throttleLoss{}
		}
		t.losses[pod][containerID] = before
	}
	return err
}

// applyChanges writes changes of a container with those of its pod, in the order that the kernel takes: on v1 a child may have no more than its
// parent.
func (t *Throttler) applyChanges(of qos.PodRef, pod string, container []Change, up bool) error {
	key := cpuKey(filepath.Base(pod))
	changes, err := t.podChanges(key, pod)
	if err != nil {
		return err
	}
	if up {
		changes = append(changes, container...)
	} else {
		changes = append(container, changes...)
	}
	return t.journal.Change(Unit{Key: key, Subject: of.String(), Changes: changes})
}

// containerChanges are the changes that bring a container from a limit to another. The kernel takes no burst above the quota; before 5.14 it has
// none at all.
func (t *Throttler) containerChanges(key, group string, now, next cgroup.Bandwidth, burst time.Duration) ([]Change, error) {
	names := cpuLimitFiles(t.layout.Version)
	changes := []Change{{Group: group, File: names.quota, Value: names.format(next)}}
	if t.layout.Version != cgroup.V2 {
		changes = append(changes, Change{Group: group, File: cgroup.FilePeriodV1, Value: micros(now.Period), Condition: true})
	}
	text, err := t.journal.Original(key, group, names.burst)
	if errors.Is(err, host.ErrGone) {
		return changes, nil
	}
	if err != nil {
		return nil, err
	}
	most, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", names.burst, err)
	}
	to := time.Duration(most) * time.Microsecond
	if !next.Unlimited() {
		to = min(to, next.Quota)
	}
	change := Change{Group: group, File: names.burst, Value: micros(to)}
	if to < burst {
		return append([]Change{change}, changes...), nil
	}
	return append(changes, change), nil
}

// podChanges are the changes of a pod's group: its quota is lower by what its containers have lost, and its weight by the least share that one of
// them keeps it at.
func (t *Throttler) podChanges(key, pod string) ([]Change, error) {
	var lost float64
	keep := series.Ratio(0)
	for _, c := range t.losses[pod] {
		lost += c.cores
		if c.weight == 0 {
			keep = 1 // One with a claim to all of it.
		}
		keep = max(keep, c.weight)
	}
	limit, _, err := t.layout.ReadLimit(&t.reader, pod)
	if errors.Is(err, host.ErrGone) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("limit of cpu: %w", err)
	}
	original, err := t.originalLimit(key, pod, limit.Period)
	if err != nil {
		return nil, err
	}
	var changes []Change
	if !original.Unlimited() {
		names := cpuLimitFiles(t.layout.Version)
		cores := original.Cores() - lost
		original.Quota = max(time.Duration(cores*float64(original.Period)).Round(time.Microsecond), minQuota*time.Microsecond)
		changes = append(changes, Change{Group: pod, File: names.quota, Value: names.format(original)})
	}
	weight, err := t.weightChange(key, pod, keep)
	return append(changes, weight...), err
}

// weightChange is the change of a pod's weight to a share of the original. Idle groups have none, and the least cannot be less.
func (t *Throttler) weightChange(key, pod string, keep series.Ratio) ([]Change, error) {
	file, least := cgroup.FileWeight, 1.0
	if t.layout.Version != cgroup.V2 {
		file, least = cgroup.FileSharesV1, 2
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
	to := max(float64(original)*float64(keep), least)
	if to >= float64(original) {
		to = float64(original)
	}
	return []Change{{Group: pod, File: file, Value: strconv.FormatUint(uint64(to+0.5), 10)}}, nil
}

// originalLimit is the limit that a group will get back.
func (t *Throttler) originalLimit(key, group string, period time.Duration) (cgroup.Bandwidth, error) {
	names := cpuLimitFiles(t.layout.Version)
	text, err := t.journal.Original(key, group, names.quota)
	if err != nil {
		return cgroup.Bandwidth{}, err
	}
	if names.v2 {
		b, err := cgroup.ParseCPUMax([]byte(text + "\n"))
		if err != nil {
			return b, fmt.Errorf("%s: %w", names.quota, err)
		}
		return b, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return cgroup.Bandwidth{}, fmt.Errorf("%s: %w", names.quota, err)
	}
	return cgroup.Bandwidth{Quota: time.Duration(n) * time.Microsecond, Period: period}, nil
}

// limitFiles are the files of a limit of cpu.
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

// format is a limit as its file holds it.
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
