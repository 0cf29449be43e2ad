// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"crane.io/crane/pkg/units"
)

const (
	// MaxZones is the maximum number of zones; the largest Linux machines have some dozens.
	MaxZones = 256
	// MaxOwners is the maximum number of owners; Kubernetes supports 110 pods, large nodes 500.
	MaxOwners = 4096
	// localDistance and remoteDistance are the distances of a zone to itself and, by convention, to a zone without an entry in the
	// firmware's table (ACPI SLIT).
	localDistance, remoteDistance = 10, 20
)

// Zone is a NUMA node of a machine.
type Zone struct {
	// Name is unique on the machine; node0 is usual.
	Name string
	// Usable is what pods can use. A resource that no zone has is unlimited; one that only other zones have is 0 here.
	Usable Resources
	// Distances maps zone names to distances, 10 for the zone itself. A missing distance is 20.
	Distances map[string]int
}

// Share is an amount in one zone.
type Share struct {
	Zone      string
	Resources Resources
}

// Placement is an allocation on a node, at most one share per zone, in the order of the zones.
type Placement []Share

// Validate returns an error for shares without a zone, duplicate zones and amounts out of range.
func (p Placement) Validate() error {
	if len(p) > MaxZones {
		return fmt.Errorf("%d zones, at most %d are allowed", len(p), MaxZones)
	}

	for i, s := range p {
		if s.Zone == "" {
			return fmt.Errorf("share %d names no zone", i)
		}

		if slices.ContainsFunc(p[:i], func(o Share) bool { return o.Zone == s.Zone }) {
			return fmt.Errorf("zone %q is listed twice", s.Zone)
		}

		if err := s.Resources.validate(); err != nil {
			return fmt.Errorf("zone %q: %w", s.Zone, err)
		}
	}

	return nil
}

// Node tracks the zones of a node and the placements of owners. The zero value has no zones but accepts placements, so that owners may
// come before the zones are known.
type Node struct {
	capacity   capacity
	placements map[string]Placement

	undoLog   []undoRecord
	recording bool
}

// capacity is the usable and the used amounts of zones. It chooses zones for requests.
type capacity struct {
	resources []units.Resource // of the zones, CPU first
	zones     []zone           // in natural order of their names
}

type zone struct {
	name      string
	usable    []Amount // by resource
	used      []Amount // by resource; above usable if the zone shrank or others wrote the placements
	distances []int32  // by zone; nil for unknown
}

// HasZones reports whether there are any zones.
func (n *Node) HasZones() bool { return len(n.capacity.zones) > 0 }

// SetZones replaces the zones. Placements stay; those in removed zones count again when the zones come back. It returns an error and
// changes nothing for zones without a name, duplicate or too many zones, and amounts out of range.
func (n *Node) SetZones(zones []Zone) error {
	if err := validateZones(zones); err != nil {
		return err
	}

	n.capacity = newCapacity(zones)
	for _, p := range n.placements {
		n.capacity.adjustUsed(p, 1)
	}

	return nil
}

func newCapacity(zones []Zone) capacity {
	zones = slices.SortedFunc(slices.Values(zones), func(a, b Zone) int { return compareNames(a.Name, b.Name) })
	named := Resources{}
	for _, z := range zones {
		maps.Copy(named, z.Usable)
	}

	c := capacity{resources: named.names(), zones: make([]zone, len(zones))}
	for i, z := range zones {
		c.zones[i] = zone{name: z.Name, usable: make([]Amount, len(c.resources)), used: make([]Amount, len(c.resources))}
		for k, kind := range c.resources {
			c.zones[i].usable[k] = z.Usable[kind]
		}

		if len(z.Distances) > 0 {
			c.zones[i].distances = newDistanceRow(z, zones)
		}
	}

	return c
}

func validateZones(zones []Zone) error {
	if len(zones) > MaxZones {
		return fmt.Errorf("%d zones, at most %d are allowed", len(zones), MaxZones)
	}

	seen := make(map[string]bool, len(zones))
	for i, z := range zones {
		if z.Name == "" {
			return fmt.Errorf("zone %d has no name", i)
		}

		if seen[z.Name] {
			return fmt.Errorf("zone %q is listed twice", z.Name)
		}

		seen[z.Name] = true
		if err := z.Usable.validate(); err != nil {
			return fmt.Errorf("zone %q: %w", z.Name, err)
		}
	}

	return nil
}

// Place records the placement of an owner and replaces its previous one. It does not check whether p fits. It returns an error and
// changes nothing for an invalid placement or too many owners.
func (n *Node) Place(owner string, p Placement) error {
	if owner == "" {
		return errors.New("placement without an owner")
	}

	if err := p.Validate(); err != nil {
		return err
	}

	before, existed := n.placements[owner]
	if !existed && len(n.placements) >= MaxOwners {
		return fmt.Errorf("too many owners, at most %d are allowed", MaxOwners)
	}

	n.recordUndo(undoRecord{owner: owner, before: before, existed: existed})
	if existed {
		n.capacity.adjustUsed(before, -1)
	}
	if n.placements == nil {
		n.placements = map[string]Placement{}
	}

	n.placements[owner] = p
	n.capacity.adjustUsed(p, 1)
	return nil
}

// Remove removes the placement of an owner and reports whether it had one.
func (n *Node) Remove(owner string) bool {
	before, existed := n.placements[owner]
	if !existed {
		return false
	}

	n.recordUndo(undoRecord{owner: owner, before: before, existed: true})
	n.capacity.adjustUsed(before, -1)
	delete(n.placements, owner)

	return true
}

// Placement returns the placement of an owner, which must not be changed.
func (n *Node) Placement(owner string) (Placement, bool) {
	p, ok := n.placements[owner]
	return p, ok
}

// Owners returns the number of owners.
func (n *Node) Owners() int { return len(n.placements) }

// Free returns the free amounts by zone, CPU in whole cores.
func (n *Node) Free() Placement {
	c := &n.capacity
	free := make(Placement, len(c.zones))
	for i := range c.zones {
		free[i] = Share{Zone: c.zones[i].name, Resources: make(Resources, len(c.resources))}
		for k, kind := range c.resources {
			free[i].Resources[kind] = c.free(i, k)
		}
	}

	return free
}

// Clone returns an independent copy without checkpoints.
func (n *Node) Clone() *Node {
	return &Node{capacity: n.capacity.clone(), placements: maps.Clone(n.placements)}
}

func (c *capacity) clone() capacity {
	out := capacity{resources: c.resources, zones: slices.Clone(c.zones)}
	used := make([]Amount, 0, len(c.zones)*len(c.resources))
	for i := range out.zones {
		used = append(used, out.zones[i].used...)
		out.zones[i].used = used[len(used)-len(c.resources):]
	}

	return out
}

// adjustUsed adds p to the used amounts, or subtracts it (sign -1).
func (c *capacity) adjustUsed(p Placement, sign Amount) {
	for _, s := range p {
		i := slices.IndexFunc(c.zones, func(z zone) bool { return z.name == s.Zone })
		if i < 0 {
			continue
		}

		for k, kind := range c.resources {
			c.zones[i].used[k] += sign * s.Resources[kind]
		}
	}
}

// free returns the free amount of resource k in zone i, at least 0; CPU in whole cores.
func (c *capacity) free(i, k int) Amount {
	return c.roundFree(k, c.zones[i].usable[k]-c.zones[i].used[k])
}

func (c *capacity) roundFree(k int, a Amount) Amount {
	if c.resources[k] == units.CPU {
		a = a / Core * Core
	}

	return max(0, a)
}

// compareNames orders names that end in a number by that number: node2 before node10.
func compareNames(a, b string) int {
	stem := func(s string) (string, int) {
		t := strings.TrimRight(s, "0123456789")
		id, err := strconv.Atoi(s[len(t):])
		if err != nil {
			return s, -1
		}

		return t, id
	}

	as, ai := stem(a)
	bs, bi := stem(b)
	if c := strings.Compare(as, bs); c != 0 {
		return c
	}

	if ai != bi {
		return ai - bi
	}

	return strings.Compare(a, b)
}
