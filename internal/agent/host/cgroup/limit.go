// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"path/filepath"
	"time"

	"crane.io/crane/internal/agent/host"
)

// LimitFiles returns the files of a group's quota and burst.
func (l Layout) LimitFiles(group string) (quota, burst string) {
	if l.Version == V2 {
		return filepath.Join(l.cpu, group, "cpu.max"), filepath.Join(l.cpu, group, "cpu.max.burst")
	}
	return filepath.Join(l.cpu, group, "cpu.cfs_quota_us"), filepath.Join(l.cpu, group, "cpu.cfs_burst_us")
}

// ReadLimit reads a group's quota and burst. The burst is 0 on kernels before 5.14. The error is host.ErrGone if the group is gone.
func (l Layout) ReadLimit(r *host.Reader, group string) (Bandwidth, time.Duration, error) {
	g := l.openGroup(group)
	defer g.close()
	var s Stat
	if err := readQuota(g, r, l.Version, &s); err != nil {
		return Bandwidth{}, 0, err
	}
	_, name := l.LimitFiles(group)
	content, err := r.ReadPath(name)
	if errors.Is(err, host.ErrGone) {
		return s.Limit, 0, nil
	}
	if err != nil {
		return Bandwidth{}, 0, err
	}
	burst, err := host.ParseSingle(content)
	if err != nil {
		return Bandwidth{}, 0, err
	}
	return s.Limit, toDuration(burst, time.Microsecond), nil
}
