// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/series"
)

const (
	// kubeletState is the kubelet's own account of who has CPUs alone.
	kubeletState = "var/lib/kubelet/cpu_manager_state"
	// stateEvery is the time between two readings of it.
	stateEvery = 10 * time.Second
)

// owned are the CPUs that belong to containers alone, by the kubelet's account and by that of another manager.
type owned struct {
	other func() (cpus numa.CPUSet, ok bool)

	read    time.Time
	kubelet numa.CPUSet
	// static tells that the kubelet gives CPUs to containers, failed why that is not known.
	static bool
	failed error

	last, now map[int]ticks // by CPU, of these CPUs at the last look and at this one
}

type ticks struct{ busy, idle uint64 }

// OwnedCPUs names another than the kubelet who gives CPUs to containers alone: of says which, and whether it gives any. It is called at
// each look.
func (o *Observer) OwnedCPUs(of func() (cpus numa.CPUSet, ok bool)) { o.owned.other = of }

// lookOwned measures how much of the CPUs that belong to containers alone is idle.
func (o *Observer) lookOwned() {
	w, n := &o.owned, &o.snapshot.Node
	n.ExclusiveIdle = Known[series.MilliCPU]{}
	if at := o.snapshot.At; w.read.IsZero() || at.Sub(w.read) >= stateEvery || at.Before(w.read) {
		w.read = at
		w.kubelet, w.static, w.failed = o.readKubeletState()
	}
	o.problem("exclusive cpus", w.failed)
	cpus, managed := w.kubelet, w.static
	if w.other != nil {
		if more, ok := w.other(); ok {
			cpus, managed = cpus.Union(more), true
		}
	}
	if !managed || w.failed != nil {
		clear(w.last)
		return
	}
	idle, err := o.idleOf(cpus)
	o.problem("exclusive cpus", err)
	n.ExclusiveIdle = idle
}

// readKubeletState reads which CPUs the kubelet has given away: all those of the node but the shared ones. Without the file, or with
// policy none, it gives none.
func (o *Observer) readKubeletState() (cpus numa.CPUSet, static bool, err error) {
	file := host.NewFile(o.root.Path(kubeletState))
	defer file.Close()
	content, err := o.reader.Read(&file)
	if errors.Is(err, host.ErrGone) {
		return numa.CPUSet{}, false, nil
	}
	if err != nil {
		return numa.CPUSet{}, false, err
	}
	return parseKubeletState(content)
}

// parseKubeletState reads the kubelet's checkpoint, of any version: the shared CPUs are what all of them have in common, and entries those
// of containers.
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
	}
	shared, err := numa.ParseCPUSet(state.Shared)
	take := func(list string) {
		set, failed := numa.ParseCPUSet(list)
		err = errors.Join(err, failed)
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

// idleOf is how much of some CPUs was idle since the last look, which has to have seen the same ones.
func (o *Observer) idleOf(cpus numa.CPUSet) (Known[series.MilliCPU], error) {
	w := &o.owned
	if cpus.Len() == 0 {
		return known(series.MilliCPU(0)), nil
	}
	content, err := o.reader.Read(&o.files.stat)
	if err != nil {
		return Known[series.MilliCPU]{}, err
	}
	if w.now == nil {
		w.now, w.last = map[int]ticks{}, map[int]ticks{}
	}
	clear(w.now)
	if err := host.ParseStatCPUs(content, func(cpu int, busy, idle uint64) {
		if cpus.Contains(cpu) {
			w.now[cpu] = ticks{busy, idle}
		}
	}); err != nil {
		return Known[series.MilliCPU]{}, fmt.Errorf("idle time of CPUs: %w", err)
	}
	sum, whole := 0.0, len(w.now) == len(w.last)
	for cpu, now := range w.now {
		last, ok := w.last[cpu]
		if !ok || now.busy < last.busy || now.idle < last.idle || now.busy+now.idle == last.busy+last.idle {
			whole = false
			break
		}
		sum += float64(now.idle-last.idle) / float64(now.busy+now.idle-last.busy-last.idle)
	}
	w.last, w.now = w.now, w.last
	if !whole {
		return Known[series.MilliCPU]{}, nil
	}
	return known(series.MilliCPU(1000*sum + 0.5)), nil
}
