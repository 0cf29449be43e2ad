// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"

	"crane.io/crane/pkg/numa"
)

// ReadCPUs reads a file with a CPU list such as 0-3,8; an empty line is an empty set. The error is ErrGone for a missing file and
// ErrTruncated for an incomplete one.
func (r *Reader) ReadCPUs(path string) (numa.CPUSet, error) {
	content, err := r.ReadPath(path)
	if err != nil {
		return numa.CPUSet{}, err
	}
	var set numa.CPUSet
	err = Lines(content, func(line []byte) error {
		var failed error
		set, failed = numa.ParseCPUSet(string(line))
		return failed
	})
	if err != nil {
		return numa.CPUSet{}, fmt.Errorf("%s: %w", path, err)
	}
	return set, nil
}

// OnlineCPUs returns the online CPUs; an empty set is an error.
func (r *Reader) OnlineCPUs(root Root) (numa.CPUSet, error) {
	path := root.Path("sys/devices/system/cpu/online")
	set, err := r.ReadCPUs(path)
	if err == nil && set.Len() == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	if err != nil {
		return numa.CPUSet{}, fmt.Errorf("online CPUs are unknown: %w", err)
	}
	return set, nil
}
