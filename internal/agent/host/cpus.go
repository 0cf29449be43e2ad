// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"

	"crane.io/crane/pkg/numa"
)

// ReadCPUs reads a file with a list of CPUs, such as 0-3,8; an empty one is an empty set, half a line is an error. The error is ErrGone where the file is not there.
func (r *Reader) ReadCPUs(path string) (numa.CPUSet, error) {
	file := NewFile(path)
	defer file.Close()
	content, err := r.Read(&file)
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

// OnlineCPUs are those that the kernel runs on. None is an error.
func (r *Reader) OnlineCPUs(root Root) (numa.CPUSet, error) {
	path := root.Path("sys/devices/system/cpu/online")
	set, err := r.ReadCPUs(path)
	if err == nil && set.Len() == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	if err != nil {
		return numa.CPUSet{}, fmt.Errorf("CPUs online are not known: %w", err)
	}
	return set, nil
}
