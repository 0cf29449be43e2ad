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
)

const (
	// MaxZones is the most zones a node may have. The largest machines that Linux runs on today have some dozens.
	MaxZones = 256
	// MaxOwners is the most that may hold something on a node; Kubernetes supports 110 pods, large nodes 500.
	MaxOwners = 4096
	// localDistance and remoteDistance are what the firmware's table (ACPI SLIT) says of a zone itself and, by custom, of
	// one that it says nothing about.
	localDistance, remoteDistance = 10, 20
)

// Zone is a NUMA node of a machine.
type Zone struct {
	// Name is unique on the machine and otherwise free; node0 is usual.
	Name string
	// Usable is what pods can have of it. A resource that no zone of the machine names is not the zones' business and
	// limits nothing; one that other zones name and this one does not, this one has none of.
	Usable Resources
	// Distances to other zones by name, 10 for the zone itself. What is missing counts as 20.
	Distances map[string]int
}

// Share is what is held of one zone.
type Share struct {
	Zone      string
	Resources Resources
}

// Placement is what is held of a node, at most one share for each zone, by the order of the zones.
type Placement []Share

// Validate reports shares without a zone, two of one zone, and amounts that cannot be.
func (p Placement) Validate() error {
	if len(p) > MaxZones {
		return fmt.Errorf("%d zones, want at most %d", len(p), MaxZones)
	}
	for i, s := range p {
		if s.Zone == "" {
			return fmt.Errorf("share %d names no zone", i)
		}
		if slices.ContainsFunc(p[:i], func(o Share) bool { return o.Zone == s.Zone }) {
			return fmt.Errorf("zone %q stands twice", s.Zone)
		}
		if err := s.Resources.validate(); err != nil {
			return fmt.Errorf("zone %q: %w", s.Zone, err)
		}
	}
	return nil
}

// Node is the account of a node's zones: what they have and who holds what. The zero value has no zone and takes
// placements all the same, so that holders may come before the zones are known.
type Node struct {
	resources  []Resource // what the zones name, CPU first
	zones      []zone     // by natural order of their names
	placements map[string]Placement

	undoLog   []undoRecord
	recording bool
}

type zone struct {
	name      string
	usable    []Amount // by kinds
	used      []Amount // by kinds; may exceed usable, where the zone shrank or others wrote the placements
	distances []int32  // by zones; nil where nothing is known
}

// HasZones says whether there is any zone.
func (n *Node) HasZones() bool { return len(n.zones) > 0 }

// SetZones replaces the zones. Holders stay; what they hold of zones that are gone counts again when these come back.
// Zones that cannot be (no name, a name twice, too many, amounts below 0 or beyond MaxAmount) are an error and change
// nothing.
func (n *Node) SetZones(zones []Zone) error {
	if err := validateZones(zones); err != nil {
		return err
	}
	zones = slices.SortedFunc(slices.Values(zones), func(a, b Zone) int { return compareNames(a.Name, b.Name) })
	named := Resources{}
	for _, z := range zones {
		maps.Copy(named, z.Usable)
	}
	n.resources = named.names()
	n.zones = make([]zone, len(zones))
	for i, z := range zones {
		n.zones[i] = zone{name: z.Name, usable: make([]Amount, len(n.resources)), used: make([]Amount, len(n.resources))}
		for k, kind := range n.resources {
			n.zones[i].usable[k] = z.Usable[kind]
		}
		if len(z.Distances) > 0 {
			n.zones[i].distances = newDistanceRow(z, zones)
		}
	}
	for _, p := range n.placements {
		n.adjustUsed(p, 1)
	}
	return nil
}

func validateZones(zones []Zone) error {
	if len(zones) > MaxZones {
		return fmt.Errorf("%d zones, want at most %d", len(zones), MaxZones)
	}
	seen := make(map[string]bool, len(zones))
	for i, z := range zones {
		if z.Name == "" {
			return fmt.Errorf("zone %d has no name", i)
		}
		if seen[z.Name] {
			return fmt.Errorf("zone %q stands twice", z.Name)
		}
		seen[z.Name] = true
		if err := z.Usable.validate(); err != nil {
			return fmt.Errorf("zone %q: %w", z.Name, err)
		}
	}
	return nil
}

// Place records that owner holds p, in place of what it held before. It does not ask whether p fits: what is so already
// is so. An impossible placement, or one holder too many, is an error and changes nothing.
func (n *Node) Place(owner string, p Placement) error {
	if owner == "" {
		return errors.New("a placement without an owner")
	}
	if err := p.Validate(); err != nil {
		return err
	}
	before, had := n.placements[owner]
	if !had && len(n.placements) >= MaxOwners {
		return fmt.Errorf("%d holders already", len(n.placements))
	}
	n.recordUndo(undoRecord{owner: owner, before: before, had: had})
	if had {
		n.adjustUsed(before, -1)
	}
	if n.placements == nil {
		n.placements = map[string]Placement{}
	}
	n.placements[owner] = p
	n.adjustUsed(p, 1)
	return nil
}

// Remove takes from owner what it holds and says whether that was anything.
func (n *Node) Remove(owner string) bool {
	before, had := n.placements[owner]
	if !had {
		return false
	}
	n.recordUndo(undoRecord{owner: owner, before: before, had: true})
	n.adjustUsed(before, -1)
	delete(n.placements, owner)
	return true
}

// Placement returns what owner holds. It must not be changed.
func (n *Node) Placement(owner string) (Placement, bool) {
	p, ok := n.placements[owner]
	return p, ok
}

// Owners is the number of those that hold something.
func (n *Node) Owners() int { return len(n.placements) }

// Free returns what is free in each zone, CPU in whole cores.
func (n *Node) Free() Placement {
	free := make(Placement, len(n.zones))
	for i := range n.zones {
		free[i] = Share{Zone: n.zones[i].name, Resources: make(Resources, len(n.resources))}
		for k, kind := range n.resources {
			free[i].Resources[kind] = n.free(i, k)
		}
	}
	return free
}

// Clone returns a copy that shares nothing that either may change. Marks do not go with it.
func (n *Node) Clone() *Node {
	c := &Node{resources: n.resources, zones: slices.Clone(n.zones), placements: maps.Clone(n.placements)}
	used := make([]Amount, 0, len(n.zones)*len(n.resources))
	for i := range c.zones {
		used = append(used, c.zones[i].used...)
		c.zones[i].used = used[len(used)-len(n.resources):]
	}
	return c
}

// adjustUsed adds p to what is used, or takes it away (sign -1). It is exact, so that one undoes the other.
func (n *Node) adjustUsed(p Placement, sign Amount) {
	for _, s := range p {
		i := slices.IndexFunc(n.zones, func(z zone) bool { return z.name == s.Zone })
		if i < 0 {
			continue
		}
		for k, kind := range n.resources {
			n.zones[i].used[k] += sign * s.Resources[kind]
		}
	}
}

// free is what zone i has left of kind k, at least 0; of CPU only whole cores, since a part of one cannot be handed out.
func (n *Node) free(i, k int) Amount {
	return n.roundFree(k, n.zones[i].usable[k]-n.zones[i].used[k])
}

func (n *Node) roundFree(k int, a Amount) Amount {
	if n.resources[k] == CPU {
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
