// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"slices"
	"strings"
	"testing"
)

func TestComplete(t *testing.T) {
	for name, test := range map[string]struct {
		options     NodeOptions
		hostVersion int
		machine     bool
		cgroup      int
	}{
		"as the host, version 1":          {NodeOptions{}, 1, false, 1},
		"as the host, version 2":          {NodeOptions{}, 2, false, 2},
		"version 2 on a host with 1":      {NodeOptions{Cgroup: 2}, 1, true, 2},
		"version 1 on a host with 2":      {NodeOptions{Cgroup: 1}, 2, true, 1},
		"a machine of the host's version": {NodeOptions{Machine: true}, 2, true, 2},
		"systemd":                         {NodeOptions{CgroupDriver: Systemd}, 1, true, 2},
		"systemd on a host with 2":        {NodeOptions{CgroupDriver: Systemd}, 2, true, 2},
		"systemd with version 1":          {NodeOptions{CgroupDriver: Systemd, Cgroup: 1}, 1, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.options.complete(3, test.hostVersion)
			if err != nil {
				t.Fatal(err)
			}

			if got.Machine != test.machine || got.Cgroup != test.cgroup || got.Name != "node-3" {
				t.Errorf("complete() = %+v, want machine %t with cgroup version %d", got, test.machine, test.cgroup)
			}
		})
	}
}

func TestCompleteRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		options NodeOptions
		want    string
	}{
		"a name that is none":           {NodeOptions{Name: "Node_1"}, "name"},
		"another cgroup version":        {NodeOptions{Cgroup: 3}, "cgroup version 3"},
		"an unknown cgroup driver":      {NodeOptions{CgroupDriver: "runit"}, "runit"},
		"an unknown CPU policy":         {NodeOptions{CPUManagerPolicy: "best"}, "best"},
		"static without reserved CPUs":  {NodeOptions{CPUManagerPolicy: CPUManagerStatic}, "reserved"},
		"reserved CPUs that are none":   {NodeOptions{ReservedCPUs: "zero"}, "zero"},
		"a tiny disk":                   {NodeOptions{DiskBytes: 1}, "disk"},
		"real zones in namespaces":      {NodeOptions{NUMAZones: 2, RealZones: true}, "real"},
		"half a core in a zone":         {NodeOptions{Machine: true, CPUs: 6, NUMAZones: 2, Threads: 2}, "whole cores"},
		"more zones than CPUs":          {NodeOptions{Machine: true, CPUs: 2, NUMAZones: 3}, "zones"},
		"too little memory":             {NodeOptions{Machine: true, MemoryMiB: 64}, "memory"},
		"a machine without end of CPUs": {NodeOptions{Machine: true, CPUs: 1000}, "CPUs"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := test.options.complete(1, 1); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("complete() = %v, want an error that names %q", err, test.want)
			}
		})
	}
}

func TestZones(t *testing.T) {
	for _, test := range []struct {
		cpus, zones int
		want        []string
	}{
		{4, 0, nil},
		{4, 1, []string{"0-3"}},
		{4, 2, []string{"0-1", "2-3"}},
		{2, 2, []string{"0", "1"}},
		{5, 2, []string{"0-1", "2-4"}},
	} {
		o := NodeOptions{Machine: true, CPUs: test.cpus, NUMAZones: test.zones}
		if got := o.zones(); !slices.Equal(got, test.want) {
			t.Errorf("zones() of %d CPUs in %d zones = %v, want %v", test.cpus, test.zones, got, test.want)
		}
	}
}

func TestTwoNodesOfOneName(t *testing.T) {
	if err := checkNames([]NodeOptions{{Name: "a"}, {Name: "b"}, {Name: "a"}}); err == nil {
		t.Error("checkNames of two nodes named a: no error, want one")
	}
}
