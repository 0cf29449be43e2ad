// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"strconv"
	"strings"

	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/qos"
)

// InheritedLimit is a limit that the journal has from a previous agent.
type InheritedLimit[L any] struct {
	// Group is the cgroup below a hierarchy's root.
	Group string
	// Original is the limit to restore, Set the one last written.
	Original, Set L
}

// InheritedLimits returns the CPU limits in the journal. Unreadable ones are left out: they are undone as they are.
func (t *Throttler) InheritedLimits() []InheritedLimit[cgroup.Bandwidth] {
	names := cpuLimitFiles(t.layout.Version)
	var out []InheritedLimit[cgroup.Bandwidth]
	for _, e := range entriesOf(t.journal, KindCPU) {
		for i := range e.Files {
			record := &e.Files[i]
			if record.File != names.quota || record.Condition {
				continue
			}

			period := e.record(record.Group, cgroup.FilePeriodV1)
			original, readable := names.parse(record.Original, period)
			set, ok := names.parse(record.Set, period)
			if readable && ok {
				out = append(out, InheritedLimit[cgroup.Bandwidth]{record.Group, original, set})
			}
		}
	}

	return out
}

// InheritedLimits returns the memory limits in the journal. Unreadable ones are left out: they are undone as they are.
func (m *MemoryThrottler) InheritedLimits() []InheritedLimit[qos.MemoryHigh] {
	var out []InheritedLimit[qos.MemoryHigh]
	for _, e := range entriesOf(m.cfg.Journal, KindMemory) {
		for i := range e.Files {
			record := &e.Files[i]
			if record.File != cgroup.FileHigh || record.Condition {
				continue
			}

			original, readable := parseMemoryHigh(record.Original)
			set, ok := parseMemoryHigh(record.Set)
			if readable && ok {
				out = append(out, InheritedLimit[qos.MemoryHigh]{record.Group, original, set})
			}
		}
	}

	return out
}

func parseMemoryHigh(text string) (qos.MemoryHigh, bool) {
	if text == "max" {
		return qos.NoMemoryHigh, true
	}

	n, err := strconv.ParseInt(text, 10, 64)
	return qos.MemoryHigh(n), err == nil
}

// entriesOf returns the entries of a kind of units.
func entriesOf(j *Journal, kind string) []Entry {
	var out []Entry
	for _, e := range j.Entries() {
		if strings.HasPrefix(e.Key, kind+"/") {
			out = append(out, e)
		}
	}

	return out
}
