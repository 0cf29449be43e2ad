// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"slices"
	"strconv"

	"crane.io/crane/internal/agent/host"
)

const (
	// maxZones limits the NUMA nodes that are read.
	maxZones = 64
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

// listZones adds new NUMA nodes and removes those that are gone.
func (o *Observer) listZones() {
	n := &o.snapshot.Node
	ids, err := o.reader.ListZones(o.root)
	if err != nil {
		o.recordProblem("numa", err)
		return
	}
	ids = ids[:min(len(ids), maxZones)]
	n.Zones = slices.DeleteFunc(n.Zones, func(z Zone) bool {
		gone := !slices.Contains(ids, z.ID)
		if gone {
			z.file.Close()
		}
		return gone
	})
	for _, id := range ids {
		if !slices.ContainsFunc(n.Zones, func(z Zone) bool { return z.ID == id }) {
			n.Zones = append(n.Zones, Zone{ID: id, file: host.NewFile(o.root.Path(host.ZonesDir, "node"+strconv.Itoa(id), "meminfo"))})
		}
	}
	slices.SortFunc(n.Zones, func(a, b Zone) int { return cmp.Compare(a.ID, b.ID) })
}

func (o *Observer) closeZones() {
	for i := range o.snapshot.Node.Zones {
		o.snapshot.Node.Zones[i].file.Close()
	}
}
