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
	zonesAt = "sys/devices/system/node"
	// maxZone is the largest number of a NUMA node that Linux gives, maxZones how many are looked at.
	maxZone  = 1023
	maxZones = 64
	// zonesEvery is the number of looks after which they are listed again: memory may be plugged in.
	zonesEvery = 60
)

// lookZones reads the memory of every NUMA node.
func (o *Observer) lookZones() {
	n := &o.snapshot.Node
	if o.tick%zonesEvery == 1 {
		o.listZones()
	}
	for i := range n.Zones {
		z := &n.Zones[i]
		z.Memory = read(o, "numa", &z.file, host.ParseZoneMeminfo)
	}
}

func (o *Observer) listZones() {
	n := &o.snapshot.Node
	err := o.reader.Subdirectories(o.root.Path(zonesAt), func(name []byte) {
		number, ok := cutPrefix(name, "node")
		if !ok {
			return
		}
		id, err := host.Uint(number)
		if err != nil || id > maxZone {
			return // possible, online and has_cpu are files; power is another directory.
		}
		for i := range n.Zones {
			if n.Zones[i].ID == int(id) {
				n.Zones[i].tick = o.tick
				return
			}
		}
		if len(n.Zones) < maxZones {
			file := host.NewFile(o.root.Path(zonesAt, "node"+strconv.FormatUint(id, 10), "meminfo"))
			n.Zones = append(n.Zones, Zone{ID: int(id), file: file, tick: o.tick})
		}
	})
	if err != nil && !errors.Is(err, host.ErrGone) {
		o.problem("numa", err)
		return
	}
	n.Zones = slices.DeleteFunc(n.Zones, func(z Zone) bool {
		if z.tick != o.tick {
			z.file.Close()
		}
		return z.tick != o.tick
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
