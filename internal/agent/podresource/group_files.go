// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podresource

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/units"
)

// Aspects of a group. Each has its own journal unit, so that a refused write does not undo the others.
const (
	aspectCPU    = "quota"
	aspectWeight = "weight"
	aspectMemory = "memory"
	// aspectMemoryHigh limits the growth of a group until its memory limit can be set.
	aspectMemoryHigh = "pressure"
)

// groupFiles compares cgroup files with their targets.
type groupFiles struct {
	layout cgroup.Layout
	// idle means that cpu.idle is supported and used (v2 only).
	idle   bool
	reader *host.Reader
	// newWeights means that the node's runtime converts shares to weights by the newer formula.
	newWeights bool
}

func newGroupFiles(layout cgroup.Layout) groupFiles {
	return groupFiles{layout: layout, idle: layout.Version == cgroup.V2 && layout.HasFile("cpu", cgroup.FileIdle), reader: &host.Reader{}}
}

// pendingChange is a unit that has to be written; from and to describe it in reports.
type pendingChange struct {
	aspect   string
	changes  []act.Change
	from, to string
}

// unitFiles are the files of a group as its units see them: below what a throttle wrote, which those units do not undo.
type unitFiles struct {
	groupFiles

	unit  unit
	group string
	// journalFor returns the journal of an aspect; nil in a dry run.
	journalFor func(aspect string) *act.Journal
}

// pendingChanges returns the units of a group that differ from the target. Read errors are joined; a removed group needs no changes.
func (g unitFiles) pendingChanges(w groupTarget) ([]pendingChange, error) {
	var out []pendingChange
	var errs []error
	for _, find := range []func(groupTarget) (pendingChange, error){g.pendingQuota, g.pendingWeight, g.pendingMemory} {
		n, err := find(w)
		if errors.Is(err, host.ErrGone) {
			return nil, nil
		}

		if err != nil {
			errs = append(errs, err)
		} else if len(n.changes) > 0 {
			out = append(out, n)
		}
	}

	return out, errors.Join(errs...)
}

// pendingQuota returns the CPU limit if it exceeds the target.
func (g unitFiles) pendingQuota(w groupTarget) (pendingChange, error) {
	if w.limits.CPU <= 0 {
		return pendingChange{}, nil
	}

	now, err := g.readLimit()
	if err != nil {
		return pendingChange{}, fmt.Errorf("reading the CPU limit: %w", err)
	}

	if now.Period <= 0 {
		return pendingChange{}, fmt.Errorf("reading the CPU limit: period is %s", now.Period)
	}

	// A lower limit of another process is kept; a lower one of this unit follows the target.
	limit := cgroup.NewBandwidth(w.limits.CPU, now.Period)
	changes := act.QuotaChanges(g.layout.Version, g.group, limit)
	isLower := !now.Unlimited() && now.Quota <= limit.Quota
	if isLower && (now.Quota == limit.Quota || !g.isOwn(aspectCPU, changes[0].File)) {
		return pendingChange{}, nil
	}

	n := pendingChange{
		aspect:  aspectCPU,
		changes: changes,
		from:    "none",
		to:      units.FormatCores(w.limits.CPU),
	}

	if !now.Unlimited() {
		n.from = fmt.Sprintf("%.3g cores", now.Cores())
	}

	return n, nil
}

// pendingWeight returns the CPU weight if it differs, or the idle class for a whole pod.
func (g unitFiles) pendingWeight(w groupTarget) (pendingChange, error) {
	if w.weight <= 0 {
		return pendingChange{}, nil
	}

	file := cgroup.FileWeight
	value := g.formatWeight(w.weight)
	if g.layout.Version != cgroup.V2 {
		file = cgroup.FileSharesV1
		value = formatShares(w.weight)
	}

	if g.idle && w.idle {
		now, err := g.readOf(aspectWeight, cgroup.FileIdle)
		if err != nil || now == "1" {
			return pendingChange{}, err
		}

		// The weight comes first: an idle group accepts none, and the unit must restore it.
		return pendingChange{
			aspect: aspectWeight,
			from:   "weight",
			to:     "idle",
			changes: []act.Change{
				{Group: g.group, File: file, Value: value}, {Group: g.group, File: cgroup.FileIdle, Value: "1"},
			},
		}, nil
	}

	now, err := g.readOf(aspectWeight, file)
	if err != nil || now == value {
		return pendingChange{}, err
	}

	return pendingChange{
		aspect:  aspectWeight,
		from:    now,
		to:      value,
		changes: []act.Change{{Group: g.group, File: file, Value: value}},
	}, nil
}

// formatShares and formatWeight return the cpu.shares and cpu.weight that a kubelet sets for the same request (formula of KEP-2254).
// Containers get the weight of their runtime, see formatNewWeight.
func formatShares(m units.MilliCPU) string { return strconv.FormatInt(computeShares(m), 10) }

func computeShares(m units.MilliCPU) int64 {
	const minShares, maxShares = 2, 262144
	return min(max(int64(math.Min(float64(m), maxShares*1000))*1024/1000, minShares), maxShares)
}

func formatWeight(m units.MilliCPU) string {
	return strconv.FormatInt(1+(computeShares(m)-2)*9999/262142, 10)
}

// formatNewWeight returns the cpu.weight that runc 1.3.2, crun 1.23 and newer set: 1024 shares become the default weight of 100
// (ConvertCPUSharesToCgroupV2Value of opencontainers/cgroups).
func formatNewWeight(m units.MilliCPU) string {
	const maxWeight = 10000
	l := math.Log2(float64(computeShares(m)))
	weight := math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34))
	return strconv.FormatInt(int64(min(max(weight, 1), maxWeight)), 10)
}

func (g groupFiles) formatWeight(m units.MilliCPU) string {
	if g.newWeights {
		return formatNewWeight(m)
	}

	return formatWeight(m)
}

// weightFormula returns whether a container with an ordinary CPU request has the weight of the newer formula; ok is false if its weight is
// that of both or of none.
func (g groupFiles) weightFormula(group string, request units.MilliCPU) (isNew, ok bool) {
	now, err := g.readSetting(group, cgroup.FileWeight)
	older := formatWeight(request)
	newer := formatNewWeight(request)
	if err != nil || older == newer {
		return false, false
	}

	return now == newer, now == newer || now == older
}

// pendingMemory returns the memory limit if it exceeds the target. On v2 a group that uses more would be OOM-killed; it gets memory.high
// first and the limit once it uses less. On v1 the kernel refuses the limit until it can reclaim the rest.
func (g unitFiles) pendingMemory(w groupTarget) (pendingChange, error) {
	if w.limits.Memory <= 0 {
		return pendingChange{}, nil
	}

	// A lower limit is kept, as for CPU.
	file := cgroup.FileMemory
	if g.layout.Version != cgroup.V2 {
		file = cgroup.FileMemoryV1
	}

	limit := w.limits.Memory
	text, err := g.readOf(aspectMemory, file)
	if err != nil {
		return pendingChange{}, err
	}

	now, err := parseBytes(file, text)
	if err != nil {
		return pendingChange{}, err
	}

	value := strconv.FormatInt(int64(limit), 10)
	isLower := now <= limit || cgroup.EqualSettings(file, text, value)
	if isLower && (cgroup.EqualSettings(file, text, value) || !g.isOwn(aspectMemory, file)) {
		return pendingChange{}, nil
	}

	n := pendingChange{aspect: aspectMemory, from: formatMiB(now), to: formatMiB(limit)}
	if g.layout.Version != cgroup.V2 {
		n.changes = []act.Change{{Group: g.group, File: file, Value: value}}
		return n, nil
	}

	used, err := g.readMemoryUse(g.group)
	if err != nil {
		return pendingChange{}, err
	}

	if used <= limit {
		n.changes = []act.Change{{Group: g.group, File: file, Value: value}}
		return n, nil
	}

	high, err := g.readBytes(g.group, cgroup.FileHigh)
	if err != nil || high <= limit {
		return pendingChange{}, err
	}

	return pendingChange{
		aspect:  aspectMemoryHigh,
		from:    formatMiB(high),
		to:      formatMiB(limit) + " as memory.high, since more is used",
		changes: []act.Change{{Group: g.group, File: cgroup.FileHigh, Value: value}},
	}, nil
}

// isMemoryLimited reports whether the memory limit is in force, so that memory.high is not needed any more.
func (g groupFiles) isMemoryLimited(group string, w groupTarget) bool {
	if w.limits.Memory <= 0 || g.layout.Version != cgroup.V2 {
		return false
	}

	now, err := g.readBytes(group, cgroup.FileMemory)
	return err == nil && now <= w.limits.Memory
}

// readMemoryUse returns the memory use of a group.
func (g groupFiles) readMemoryUse(group string) (units.Bytes, error) {
	path, err := g.layout.SettingFile(group, cgroup.FileMemory)
	if err != nil {
		return 0, fmt.Errorf("reading the memory use: %w", err)
	}

	content, err := g.reader.ReadPath(filepath.Join(filepath.Dir(path), "memory.current"))
	if err != nil {
		return 0, err
	}

	used, err := host.ParseSingle(content)
	return units.Bytes(min(used, math.MaxInt64)), err
}

// noLimit is above any limit.
const noLimit = units.Bytes(math.MaxInt64)

func formatMiB(b units.Bytes) string {
	if b >= 1<<60 {
		return "none" // v1 shows a page-size dependent maximum
	}

	return fmt.Sprintf("%d MiB", int64(b)>>20)
}

// readBytes reads a setting in bytes.
func (g groupFiles) readBytes(group, file string) (units.Bytes, error) {
	text, err := g.readSetting(group, file)
	if err != nil {
		return 0, err
	}

	return parseBytes(file, text)
}

// parseBytes parses a setting in bytes; max is noLimit.
func parseBytes(file, text string) (units.Bytes, error) {
	if text == "max" {
		return noLimit, nil
	}

	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%s: %.40q: %w", file, text, host.ErrTruncated)
	}

	return units.Bytes(n), nil
}

// readSetting reads a setting of a group.
func (g groupFiles) readSetting(group, file string) (string, error) {
	return g.layout.ReadSetting(g.reader, group, file)
}

// readOf reads a setting of the group as the unit of an aspect sees it.
func (g unitFiles) readOf(aspect, file string) (string, error) {
	journal := g.journalFor(aspect)
	if journal == nil {
		return g.readSetting(g.group, file)
	}

	return journal.Current(g.unit.key(aspect), g.group, file)
}

// readLimit returns the CPU limit of the group as its unit sees it.
func (g unitFiles) readLimit() (cgroup.Bandwidth, error) {
	journal := g.journalFor(aspectCPU)
	if journal == nil {
		now, _, err := g.layout.ReadLimit(g.reader, g.group)
		return now, err
	}

	if err := act.ResetScaled(journal, g.unit.key(aspectCPU), g.group); err != nil {
		return cgroup.Bandwidth{}, err
	}

	return act.CurrentLimit(journal, g.unit.key(aspectCPU), g.group)
}

// isOwn reports whether the unit of an aspect set the value that it sees in a file.
func (g unitFiles) isOwn(aspect, file string) bool {
	journal := g.journalFor(aspect)
	if journal == nil {
		return false
	}

	now, err := journal.Current(g.unit.key(aspect), g.group, file)
	entry, changed := journal.Entry(g.unit.key(aspect))
	return err == nil && changed && entry.Sets(g.group, file, now)
}
