// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package perf

import (
	"errors"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
)

var errNotLinux = errors.New("only Linux has perf events")

func openHardware(string, int) (counter, error) { return nil, errNotLinux }

// UnsupportedReason returns why the host cannot count cycles and instructions of pods.
func UnsupportedReason(host.Root, cgroup.Layout) string { return errNotLinux.Error() }
