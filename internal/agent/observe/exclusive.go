// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/kubeletsocket"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

const (
	// defaultKubeletDir is the kubelet's default root directory, kubeletStateFile its CPU manager checkpoint.
	defaultKubeletDir = "var/lib/kubelet"
	kubeletStateFile  = "cpu_manager_state"
	// kubeletStateInterval is the interval at which the checkpoint is read.
	kubeletStateInterval = 10 * time.Second
)

// exclusiveState holds the CPUs of single containers, according to the kubelet and to another CPU manager.
type exclusiveState struct {
	source     func() (cpus numa.CPUSet, ok bool)
	kubeletDir string
	// assignments are read if the checkpoint is not visible; nil for none.
	assignments kubeletsocket.Source

	readAt  time.Time
	kubelet numa.CPUSet
	// static means that the kubelet assigns CPUs; readError is set if that is unknown.
	static    bool
	readError error

	lastTicks, ticks map[int]cpuTicks // by CPU, of the previous and of this measurement

	// cpus holds all exclusive CPUs, pods the UIDs of pods with a container that runs only on them, as of podsCheckedAt.
	cpus          numa.CPUSet
	pods          map[string]bool
	podsCheckedAt time.Time
}

type cpuTicks struct{ busy, idle uint64 }

// SetKubelet sets the kubelet's root directory below the host's root, /var/lib/kubelet by default, and what its socket reports, which is used
// where its checkpoint is not visible, as in a pod; nil for none.
func (o *Observer) SetKubelet(dir string, assignments kubeletsocket.Source) {
	o.exclusive.kubeletDir = dir
	o.exclusive.assignments = assignments
}

// SetExclusiveCPUs adds a source of exclusive CPUs beside the kubelet. It is called at every measurement and returns false
// while it assigns none.
func (o *Observer) SetExclusiveCPUs(source func() (cpus numa.CPUSet, ok bool)) {
	o.exclusive.source = source
}

// collectExclusiveIdle measures the idle part of exclusive CPUs.
func (o *Observer) collectExclusiveIdle() {
	w := &o.exclusive
	n := &o.snapshot.Node
	n.ExclusiveIdle = Known[units.MilliCPU]{}
	n.ExclusiveUnknown = false

	if now := o.snapshot.At; w.readAt.IsZero() || now.Sub(w.readAt) >= kubeletStateInterval || now.Before(w.readAt) {
		w.readAt = now
		w.kubelet, w.static, w.readError = w.readKubelet(o.hostFiles)
	}

	o.recordProblem("exclusive cpus", w.readError)
	cpus, managed := w.kubelet, w.static
	if w.source != nil {
		if more, ok := w.source(); ok {
			cpus = cpus.Union(more)
			managed = true
		}
		// CPUs that are unknown must not count as idle.
	}

	// While a manager's CPUs are unknown, those known before count as exclusive.
	if w.readError != nil {
		clear(w.lastTicks)
		w.cpus = w.cpus.Union(cpus)
		n.ExclusiveUnknown = true
		return
	}

	if !managed {
		clear(w.lastTicks)
		w.cpus = numa.CPUSet{}
		return
	}

	if w.cpus != cpus {
		w.cpus = cpus
		w.podsCheckedAt = time.Time{}
	}

	idle, err := w.measureIdle(o.hostFiles, &o.files.stat, cpus)
	o.recordProblem("exclusive cpus", err)
	n.ExclusiveIdle = idle
	n.ExclusiveUnknown = !idle.OK
}

// readKubelet returns the CPUs that the kubelet assigned to containers, by its checkpoint or else by its socket. It assigns none without
// both, or with policy none.
func (w *exclusiveState) readKubelet(files hostFiles) (cpus numa.CPUSet, static bool, err error) {
	content, err := files.reader.ReadPath(files.root.Path(cmp.Or(w.kubeletDir, defaultKubeletDir), kubeletStateFile))
	if err == nil {
		return parseKubeletState(content)
	}
	if !errors.Is(err, host.ErrGone) {
		return numa.CPUSet{}, false, err
	}

	if w.assignments == nil {
		return numa.CPUSet{}, false, nil
	}

	a, err := w.assignments()
	if errors.Is(err, fs.ErrNotExist) {
		return numa.CPUSet{}, false, nil
	}

	return a.CPUs, a.StaticCPUs, err
}

// parseKubeletState parses the kubelet's checkpoint of any version: defaultCpuSet holds the shared CPUs, entries those of containers.
func parseKubeletState(content []byte) (cpus numa.CPUSet, static bool, err error) {
	var state struct {
		PolicyName string                       `json:"policyName"`
		Shared     string                       `json:"defaultCpuSet"`
		Entries    map[string]map[string]string `json:"entries"`
		Pods       map[string]struct {
			CPUs string `json:"cpuSet"`
		} `json:"podEntries"`
	}

	if err := json.Unmarshal(content, &state); err != nil {
		return numa.CPUSet{}, false, fmt.Errorf("cpu_manager_state: %w", err)
	}

	if !strings.EqualFold(state.PolicyName, "static") {
		return numa.CPUSet{}, false, nil
		// entries lists the CPUs of containers, podEntries those of whole pods in newer versions.
	}

	shared, err := numa.ParseCPUSet(state.Shared)
	take := func(list string) {
		set, parseErr := numa.ParseCPUSet(list)
		err = errors.Join(err, parseErr)
		cpus = cpus.Union(set)
	}

	for _, pod := range state.Entries {
		for _, list := range pod {
			take(list)
		}
	}

	for _, pod := range state.Pods {
		take(pod.CPUs)
	}

	if err != nil {
		return numa.CPUSet{}, false, fmt.Errorf("cpu_manager_state: %w", err)
	}

	return cpus.Difference(shared), true, nil
}

// collectExclusivePods marks pods with a container on exclusive CPUs, which does not compete with others.
func (o *Observer) collectExclusivePods() {
	w := &o.exclusive
	now := o.snapshot.At
	if w.cpus.Len() == 0 {
		clear(w.pods)
	} else if w.podsCheckedAt.IsZero() || now.Sub(w.podsCheckedAt) >= kubeletStateInterval || now.Before(w.podsCheckedAt) {
		w.podsCheckedAt = now
		if w.pods == nil {
			w.pods = map[string]bool{}
		}

		clear(w.pods)
		for i := range o.snapshot.Pods {
			p := &o.snapshot.Pods[i]
			if slices.ContainsFunc(p.Containers, o.runsOnExclusiveCPUs) {
				w.pods[p.UID] = true
			}
		}
	}

	for i := range o.snapshot.Pods {
		p := &o.snapshot.Pods[i]
		p.HasExclusiveCPUs = w.pods[p.UID]
	}
}

// runsOnExclusiveCPUs reports whether a container is confined to exclusive CPUs; false if unreadable.
func (o *Observer) runsOnExclusiveCPUs(c Container) bool {
	content, err := o.layout.ReadSetting(o.reader, c.Path, cgroup.FileCPUs)
	if err != nil {
		return false
	}

	cpus, err := numa.ParseCPUSet(content)
	return err == nil && cpus.Len() > 0 && cpus.Difference(o.exclusive.cpus).Len() == 0
}

// measureIdle returns how much of the CPUs was idle since the previous measurement; unknown if that one covered other CPUs.
func (w *exclusiveState) measureIdle(files hostFiles, stat *host.File, cpus numa.CPUSet) (Known[units.MilliCPU], error) {
	if cpus.Len() == 0 {
		return known(units.MilliCPU(0)), nil
	}

	content, err := files.reader.Read(stat)
	if err != nil {
		return Known[units.MilliCPU]{}, err
	}

	if w.ticks == nil {
		w.ticks = map[int]cpuTicks{}
		w.lastTicks = map[int]cpuTicks{}
	}

	clear(w.ticks)
	if err := host.ParseStatCPUs(content, func(cpu int, busy, idle uint64) {
		if cpus.Contains(cpu) {
			w.ticks[cpu] = cpuTicks{busy, idle}
		}
	}); err != nil {
		return Known[units.MilliCPU]{}, fmt.Errorf("idle time of exclusive CPUs: %w", err)
		// A CPU without ticks of both measurements, such as one just brought online, makes the sum incomplete.
	}

	sum := 0.0
	complete := len(w.ticks) == len(w.lastTicks)
	for cpu, now := range w.ticks {
		last, ok := w.lastTicks[cpu]
		if !ok || now.busy < last.busy || now.idle < last.idle || now.busy+now.idle == last.busy+last.idle {
			complete = false
			break
		}

		sum += float64(now.idle-last.idle) / float64(now.busy+now.idle-last.busy-last.idle)
	}

	w.lastTicks, w.ticks = w.ticks, w.lastTicks
	if !complete {
		return Known[units.MilliCPU]{}, nil
	}

	return known(units.MilliCPU(1000*sum + 0.5)), nil
}
