// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/series"
)

const (
	// kubeletDir is where a kubelet keeps its state by default, kubeletState its account of who has CPUs alone.
	kubeletDir   = "var/lib/kubelet"
	kubeletState = "cpu_manager_state"
	// stateEvery is the time between two readings of it.
	stateEvery = 10 * time.Second
)

// owned are the CPUs that belong to containers alone, by the kubelet's account and by that of another manager.
type owned struct {
	other func() (cpus numa.CPUSet, ok bool)
	dir   string

	read    time.Time
	kubelet numa.CPUSet
	// static tells that the kubelet gives CPUs to containers, failed why that is not known.
	static bool
	failed error

	last, now map[int]ticks // by CPU, of these CPUs at the last look and at this one

	// cpus are all of them, pods those whose containers run on them alone, by their UIDs, as of the time looked.
	cpus   numa.CPUSet
	pods   map[string]bool
	looked time.Time
}

type ticks struct{ busy, idle uint64 }

// KubeletAt says where the kubelet keeps its state, below the host's root; /var/lib/kubelet if nobody does.
func (o *Observer) KubeletAt(dir string) { o.owned.dir = dir }

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
		w.cpus = numa.CPUSet{}
		return
	}
	if w.cpus != cpus {
		w.cpus, w.looked = cpus, time.Time{}
	}
	idle, err := o.idleOf(cpus)
	o.problem("exclusive cpus", err)
	n.ExclusiveIdle = idle
}

// readKubeletState reads which CPUs the kubelet has given away: all those of the node but the shared ones. Without the file, or with
// policy none, it gives none.
func (o *Observer) readKubeletState() (cpus numa.CPUSet, static bool, err error) {
	file := host.NewFile(o.root.Path(cmp.Or(o.owned.dir, kubeletDir), kubeletState))
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

// lookOwners finds out which pods have a container that runs on CPUs which are its own: such a pod does not compete for CPUs with others.
func (o *Observer) lookOwners() {
	w, at := &o.owned, o.snapshot.At
	if w.cpus.Len() == 0 {
		clear(w.pods)
	} else if w.looked.IsZero() || at.Sub(w.looked) >= stateEvery || at.Before(w.looked) {
		w.looked = at
		if w.pods == nil {
			w.pods = map[string]bool{}
		}
		clear(w.pods)
		for i := range o.snapshot.Pods {
			p := &o.snapshot.Pods[i]
			if slices.ContainsFunc(p.Containers, o.runsAlone) {
				w.pods[p.UID] = true
			}
		}
	}
	for i := range o.snapshot.Pods {
		p := &o.snapshot.Pods[i]
		p.OwnCPUs = w.pods[p.UID]
	}
}

// runsAlone tells whether a container is confined to CPUs that belong to containers alone. What cannot be read is not.
func (o *Observer) runsAlone(c Container) bool {
	path, err := o.layout.Setting(c.Path, cgroup.FileCPUs)
	if err != nil {
		return false
	}
	file := host.NewFile(path)
	defer file.Close()
	content, err := o.reader.Read(&file)
	if err != nil {
		return false
	}
	cpus, err := numa.ParseCPUSet(string(content))
	return err == nil && cpus.Len() > 0 && cpus.Difference(o.owned.cpus).Len() == 0
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
