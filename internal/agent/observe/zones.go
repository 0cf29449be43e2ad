// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"errors"
	"slices"
	"strconv"

	"crane.io/crane/internal/agent/host"
)

const (
	zonesDir = "sys/devices/system/node"
	// maxZoneID is the largest NUMA node number in Linux; maxZones limits the nodes that are read.
	maxZoneID = 1023
	maxZones  = 64
	// roundsPerZoneList is the number of rounds after which NUMA nodes are listed again, because memory may be hot-plugged.
	roundsPerZoneList = 60
)

// collectZones reads the memory of every NUMA node.
func (o *Observer) collectZones() {
	n := &o.snapshot.Node
	if o.round%roundsPerZoneList == 1 {
		o.listZones()
	}
	for i := range n.Zones {
		z := &n.Zones[i]
		z.Memory = readFile(o, "numa", &z.file, host.ParseZoneMeminfo)
	}
}

func (o *Observer) listZones() {
	n := &o.snapshot.Node
	err := o.reader.Subdirectories(o.root.Path(zonesDir), func(name []byte) {
		number, ok := cutPrefix(name, "node")
		if !ok {
			return
		}
		id, err := host.Uint(number)
		if err != nil || id > maxZoneID {
			return // possible, online and has_cpu are files; power is another directory.
		}
		for i := range n.Zones {
			if n.Zones[i].ID == int(id) {
				n.Zones[i].round = o.round
				return
			}
		}
		if len(n.Zones) < maxZones {
			file := host.NewFile(o.root.Path(zonesDir, "node"+strconv.FormatUint(id, 10), "meminfo"))
			n.Zones = append(n.Zones, Zone{ID: int(id), file: file, round: o.round})
		}
	})
	if err != nil && !errors.Is(err, host.ErrGone) {
		o.recordProblem("numa", err)
		return
	}
	n.Zones = slices.DeleteFunc(n.Zones, func(z Zone) bool {
		if z.round != o.round {
			z.file.Close()
		}
		return z.round != o.round
	})
	slices.SortFunc(n.Zones, func(a, b Zone) int { return cmp.Compare(a.ID, b.ID) })
}

func cutPrefix(name []byte, prefix string) ([]byte, bool) {
	if len(name) < len(prefix) || string(name[:len(prefix)]) != prefix {
		return nil, false
	}
	return name[len(prefix):], true
}

func (o *Observer) closeZones() {
	for i := range o.snapshot.Node.Zones {
		o.snapshot.Node.Zones[i].file.Close()
	}
}
