// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podresource

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/series"
)

// What a unit of changes is about. Each is a unit of its own, so that what the kernel refuses of one does not take back another.
const (
	aspectCPU    = "quota"
	aspectWeight = "weight"
	aspectMemory = "memory"
	// aspectPressure is what a group has until its limit of memory can be set.
	aspectPressure = "pressure"
)

// groups reads and compares what groups hold.
type groups struct {
	layout cgroup.Layout
	// idle tells that the kernel has cpu.idle, and that it is used: on v2.
	idle   bool
	reader *host.Reader
}

func newGroups(layout cgroup.Layout) groups {
	return groups{layout: layout, idle: layout.Version == cgroup.V2 && layout.Has("cpu", cgroup.FileIdle), reader: &host.Reader{}}
}

// needed is a unit that has to be written, with what was and what is to be, for people.
type needed struct {
	aspect   string
	changes  []act.Change
	from, to string
}

// needs are the units of a group that hold more than is wished. What cannot be read is an error beside the others; a group that is gone
// needs nothing.
func (g groups) needs(group string, w wish) ([]needed, error) {
	var out []needed
	var errs []error
	for _, find := range []func(string, wish) (needed, error){g.quota, g.share, g.memory} {
		n, err := find(group, w)
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

// least is the least quota that the kernel takes, in microseconds.
const least = 1000

// quota is a limit of cpu that is above the wish, or none.
func (g groups) quota(group string, w wish) (needed, error) {
	if w.limits.CPU <= 0 {
		return needed{}, nil
	}
	now, _, err := g.layout.ReadLimit(g.reader, group)
	if err != nil {
		return needed{}, fmt.Errorf("limit of cpu: %w", err)
	}
	period := now.Period.Microseconds()
	if period <= 0 {
		return needed{}, fmt.Errorf("limit of cpu: period %s", now.Period)
	}
	quota := max(int64(w.limits.CPU)*period/1000, least)
	if !now.Unlimited() && now.Quota.Microseconds() <= quota {
		return needed{}, nil
	}
	n := needed{aspect: aspectCPU, from: "none", to: cores(w.limits.CPU)}
	if !now.Unlimited() {
		n.from = fmt.Sprintf("%.3g cores", now.Cores())
	}
	if g.layout.Version == cgroup.V2 {
		n.changes = []act.Change{{Group: group, File: cgroup.FileMax, Value: fmt.Sprintf("%d %d", quota, period)}}
		return n, nil
	}
	n.changes = []act.Change{
		{Group: group, File: cgroup.FileQuotaV1, Value: strconv.FormatInt(quota, 10)},
		{Group: group, File: cgroup.FilePeriodV1, Value: strconv.FormatInt(period, 10), Condition: true},
	}
	return n, nil
}

func cores(m series.MilliCPU) string { return fmt.Sprintf("%.3g cores", float64(m)/1000) }

// share is the part of cpu in the competition with others: the weight, and below it the idle class of a whole pod.
func (g groups) share(group string, w wish) (needed, error) {
	if w.weight <= 0 {
		return needed{}, nil
	}
	file, value := cgroup.FileWeight, weightOf(w.weight)
	if g.layout.Version != cgroup.V2 {
		file, value = cgroup.FileSharesV1, sharesOf(w.weight)
	}
	if g.idle && w.idle {
		now, err := g.read(group, cgroup.FileIdle)
		if err != nil || now == "1" {
			return needed{}, err
		}
		// The weight goes first: an idle group takes none, and the unit has to know it to put it back.
		return needed{aspect: aspectWeight, from: "weight", to: "idle", changes: []act.Change{
			{Group: group, File: file, Value: value}, {Group: group, File: cgroup.FileIdle, Value: "1"},
		}}, nil
	}
	now, err := g.read(group, file)
	if err != nil || now == value {
		return needed{}, err
	}
	return needed{aspect: aspectWeight, from: now, to: value, changes: []act.Change{{Group: group, File: file, Value: value}}}, nil
}

// sharesOf are the shares that a kubelet gives a request of as much, weightOf those as a weight of v2 (the formula of KEP-2254).
func sharesOf(m series.MilliCPU) string { return strconv.FormatInt(shares(m), 10) }

func shares(m series.MilliCPU) int64 {
	const fewest, most = 2, 262144
	return min(max(int64(math.Min(float64(m), most*1000))*1024/1000, fewest), most)
}

func weightOf(m series.MilliCPU) string {
	return strconv.FormatInt(1+(shares(m)-2)*9999/262142, 10)
}

// memory is a limit of memory that is above the wish, or none. A group that holds more already would be killed for it on v2: there it is
// first pressed by memory.high, and limited when it holds less. On v1 the kernel refuses until it can take the rest.
func (g groups) memory(group string, w wish) (needed, error) {
	if w.limits.Memory <= 0 {
		return needed{}, nil
	}
	file := cgroup.FileMemory
	if g.layout.Version != cgroup.V2 {
		file = cgroup.FileMemoryV1
	}
	limit := w.limits.Memory
	now, err := g.bytes(group, file)
	if err != nil || now <= limit {
		return needed{}, err
	}
	n := needed{aspect: aspectMemory, from: mebibytes(now), to: mebibytes(limit)}
	value := strconv.FormatInt(int64(limit), 10)
	if g.layout.Version != cgroup.V2 {
		n.changes = []act.Change{{Group: group, File: file, Value: value}}
		return n, nil
	}
	used, err := g.used(group)
	if err != nil {
		return needed{}, err
	}
	if used <= limit {
		n.changes = []act.Change{{Group: group, File: file, Value: value}}
		return n, nil
	}
	high, err := g.bytes(group, cgroup.FileHigh)
	if err != nil || high <= limit {
		return needed{}, err
	}
	return needed{
		aspect: aspectPressure, from: mebibytes(high), to: mebibytes(limit) + " by pressure, since more is used",
		changes: []act.Change{{Group: group, File: cgroup.FileHigh, Value: value}},
	}, nil
}

// limited tells that a limit of memory is in force, so that pressure is needed no more.
func (g groups) limited(group string, w wish) bool {
	if w.limits.Memory <= 0 || g.layout.Version != cgroup.V2 {
		return false
	}
	now, err := g.bytes(group, cgroup.FileMemory)
	return err == nil && now <= w.limits.Memory
}

// used is the memory that a group holds.
func (g groups) used(group string) (series.Bytes, error) {
	path, err := g.layout.Setting(group, cgroup.FileMemory)
	if err != nil {
		return 0, fmt.Errorf("use of memory: %w", err)
	}
	const current = "memory.current"
	text, err := readFile(filepath.Join(filepath.Dir(path), current))
	if err != nil {
		return 0, err
	}
	return parseBytes(text, current)
}

// unlimited is more than any limit.
const unlimited = series.Bytes(math.MaxInt64)

func mebibytes(b series.Bytes) string {
	if b >= 1<<60 {
		return "none" // v1 has a number for it, which depends on the page
	}
	return fmt.Sprintf("%d MiB", int64(b)>>20)
}

// bytes is the amount that a setting holds.
func (g groups) bytes(group, file string) (series.Bytes, error) {
	text, err := g.read(group, file)
	if err != nil {
		return 0, err
	}
	return parseBytes(text, file)
}

func parseBytes(text, file string) (series.Bytes, error) {
	if text == "max" {
		return unlimited, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%s: %.40q: %w", file, text, host.ErrHalf)
	}
	return series.Bytes(n), nil
}

// read is what a setting of a group holds.
func (g groups) read(group, file string) (string, error) {
	path, err := g.layout.Setting(group, file)
	if err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	return readFile(path)
}

func readFile(path string) (string, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return "", fmt.Errorf("%s: %w", path, host.ErrGone)
	}
	if err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}
