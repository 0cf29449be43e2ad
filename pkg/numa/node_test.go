// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"crane.io/crane/pkg/units"
)

// newZones returns zones node0, node1, ... with that many CPUs.
func newZones(counts ...int) []Zone {
	var zones []Zone
	for i, c := range counts {
		zones = append(zones, Zone{Name: fmt.Sprintf("node%d", i), Usable: Resources{units.CPU: Amount(c) * Core}})
	}

	return zones
}

func newNode(t testing.TB, zones ...Zone) *Node {
	t.Helper()

	n := &Node{}
	if err := n.SetZones(zones); err != nil {
		t.Fatal(err)
	}

	return n
}

func formatPlacement(p Placement) string {
	var parts []string
	for _, s := range p {
		parts = append(parts, fmt.Sprintf("%s(%s)", s.Zone, s.Resources))
	}

	return strings.Join(parts, " ")
}

func TestAssign(t *testing.T) {
	gib := Amount(1 << 30)
	hold := func(zone string, cpus int) Placement {
		return Placement{{Zone: zone, Resources: Resources{units.CPU: Amount(cpus) * Core}}}
	}
	for name, c := range map[string]struct {
		zones []Zone
		held  []Placement
		req   Request
		want  string
		fit   Fit
		zone  int // expected from Spread
	}{
		"one zone": {
			zones: newZones(4, 4), req: Request{Resources: Resources{units.CPU: 2 * Core}, SingleZone: true},
			want: "node0(cpu=2)", fit: Fits, zone: 1,
		},
		"the fullest zone that has enough": {
			zones: newZones(4, 4), held: []Placement{hold("node1", 2)}, req: Request{Resources: Resources{units.CPU: 2 * Core}, SingleZone: true},
			want: "node1(cpu=2)", fit: Fits, zone: 1,
		},
		"no single zone now": {
			zones: newZones(4, 4), held: []Placement{hold("node0", 2), hold("node1", 2)},
			req: Request{Resources: Resources{units.CPU: 4 * Core}, SingleZone: true}, fit: NotNow,
		},
		"no single zone ever": {
			zones: newZones(4, 4), req: Request{Resources: Resources{units.CPU: 6 * Core}, SingleZone: true}, fit: Never,
		},
		"even shares of odd zones": {
			zones: newZones(5, 5, 5, 5), req: Request{Resources: Resources{units.CPU: 16 * Core}},
			want: "node0(cpu=4) node1(cpu=4) node2(cpu=4) node3(cpu=4)", fit: Fits, zone: 4,
		},
		"as few odd shares as needed": {
			zones: newZones(5, 5, 5, 5), req: Request{Resources: Resources{units.CPU: 17 * Core}},
			want: "node0(cpu=5) node1(cpu=4) node2(cpu=4) node3(cpu=4)", fit: Fits, zone: 4,
		},
		"all of odd zones": {
			zones: newZones(5, 5, 5, 5), req: Request{Resources: Resources{units.CPU: 20 * Core}},
			want: "node0(cpu=5) node1(cpu=5) node2(cpu=5) node3(cpu=5)", fit: Fits, zone: 4,
		},
		"an odd zone and an even one": {
			zones: newZones(23, 10), req: Request{Resources: Resources{units.CPU: 28 * Core}},
			want: "node0(cpu=22) node1(cpu=6)", fit: Fits, zone: 2,
		},
		"zones with pairs": {
			zones: newZones(3, 3, 5), req: Request{Resources: Resources{units.CPU: 6 * Core}},
			want: "node0(cpu=2) node2(cpu=4)", fit: Fits, zone: 2,
		},
		"over two zones": {
			zones: newZones(4, 4), req: Request{Resources: Resources{units.CPU: 6 * Core}},
			want: "node0(cpu=4) node1(cpu=2)", fit: Fits, zone: 2,
		},
		"one zone where it need not": {
			zones: newZones(2, 4), req: Request{Resources: Resources{units.CPU: 3 * Core}},
			want: "node1(cpu=3)", fit: Fits, zone: 1,
		},
		"64 CPUs on 4": {
			zones: newZones(2, 2), req: Request{Resources: Resources{units.CPU: 64 * Core}}, fit: Never,
		},
		"spread, too much held": {
			zones: newZones(2, 2), held: []Placement{hold("node0", 2)}, req: Request{Resources: Resources{units.CPU: 3 * Core}}, fit: NotNow,
		},
		"no zones": {
			req: Request{Resources: Resources{units.CPU: Core}}, fit: Never,
		},
		"a part of a core cannot be handed out": {
			zones: []Zone{{Name: "a", Usable: Resources{units.CPU: 1900}}, {Name: "b", Usable: Resources{units.CPU: 1900}}},
			req:   Request{Resources: Resources{units.CPU: 3 * Core}}, fit: Never,
		},
		"memory counts in bytes": {
			zones: []Zone{
				{Name: "a", Usable: Resources{units.CPU: 8 * Core, "memory": 1 * gib}},
				{Name: "b", Usable: Resources{units.CPU: 4 * Core, "memory": 8 * gib}},
			},
			req:  Request{Resources: Resources{units.CPU: 2 * Core, "memory": 2 * gib}, SingleZone: true},
			want: "b(cpu=2, memory=2147483648)", fit: Fits, zone: 1,
		},
		"memory from two zones": {
			zones: []Zone{
				{Name: "a", Usable: Resources{units.CPU: 8 * Core, "memory": 1 * gib}},
				{Name: "b", Usable: Resources{units.CPU: 4 * Core, "memory": 1 * gib}},
			},
			req:  Request{Resources: Resources{units.CPU: 2 * Core, "memory": 2 * gib}},
			want: "a(cpu=2, memory=1073741824) b(memory=1073741824)", fit: Fits, zone: 2,
		},
		"devices": {
			zones: []Zone{
				{Name: "a", Usable: Resources{units.CPU: 8 * Core}},
				{Name: "b", Usable: Resources{units.CPU: 8 * Core, "example.com/gpu": 2}},
			},
			req:  Request{Resources: Resources{units.CPU: 2 * Core, "example.com/gpu": 1}, SingleZone: true},
			want: "b(cpu=2, example.com/gpu=1)", fit: Fits, zone: 1,
		},
		"what no zone names limits nothing": {
			zones: newZones(4), req: Request{Resources: Resources{units.CPU: Core, "memory": 1 << 40}, SingleZone: true},
			want: "node0(cpu=1)", fit: Fits, zone: 1,
		},
		"the near pair": {
			zones: []Zone{
				{Name: "node0", Usable: Resources{units.CPU: 4 * Core}, Distances: map[string]int{"node0": 10, "node1": 32, "node2": 12}},
				{Name: "node1", Usable: Resources{units.CPU: 4 * Core}},
				{Name: "node2", Usable: Resources{units.CPU: 4 * Core}},
			},
			req:  Request{Resources: Resources{units.CPU: 6 * Core}},
			want: "node0(cpu=4) node2(cpu=2)", fit: Fits, zone: 2,
		},
		"fewer beat nearer": {
			zones: []Zone{
				{Name: "node0", Usable: Resources{units.CPU: 2 * Core}, Distances: map[string]int{"node1": 11, "node2": 11}},
				{Name: "node1", Usable: Resources{units.CPU: 2 * Core}, Distances: map[string]int{"node2": 11}},
				{Name: "node2", Usable: Resources{units.CPU: 2 * Core}},
				{Name: "node3", Usable: Resources{units.CPU: 4 * Core}, Distances: map[string]int{"node0": 200, "node1": 200, "node2": 200}},
			},
			req:  Request{Resources: Resources{units.CPU: 6 * Core}},
			want: "node0(cpu=2) node3(cpu=4)", fit: Fits, zone: 2,
		},
		"sparse numbers and other names, by number": {
			zones: []Zone{
				{Name: "numa-10", Usable: Resources{units.CPU: 4 * Core}}, {Name: "numa-2", Usable: Resources{units.CPU: 4 * Core}},
			},
			req:  Request{Resources: Resources{units.CPU: 8 * Core}},
			want: "numa-2(cpu=4) numa-10(cpu=4)", fit: Fits, zone: 2,
		},
		"zones that others overfilled": {
			zones: newZones(4, 4), held: []Placement{hold("node0", 40)}, req: Request{Resources: Resources{units.CPU: 5 * Core}}, fit: NotNow,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, c.zones...)
			for i, p := range c.held {
				if err := n.Place(fmt.Sprint("pod", i), p); err != nil {
					t.Fatal(err)
				}
			}

			if got := n.Fit(c.req); got != c.fit {
				t.Errorf("fit %d, want %d", got, c.fit)
			}

			p, ok := n.Assign(c.req)
			if ok != (c.fit == Fits) || formatPlacement(p) != c.want {
				t.Errorf("assigned %q (%v), want %q", formatPlacement(p), ok, c.want)
			}
			if zones, _ := n.Spread(c.req); zones != c.zone {
				t.Errorf("spread over %d zones, want %d", zones, c.zone)
			}
		})
	}
}

func TestCloseness(t *testing.T) {
	near := newNode(t, Zone{Name: "a", Usable: Resources{units.CPU: Core}, Distances: map[string]int{"b": 12}}, Zone{Name: "b", Usable: Resources{units.CPU: Core}})
	unknown := newNode(t, newZones(1, 1)...)

	req := Request{Resources: Resources{units.CPU: 2 * Core}}
	if _, c := near.Spread(req); c != 10.0/12 {
		t.Errorf("closeness %v, want 10/12", c)
	}
	if _, c := unknown.Spread(req); c != 0.5 {
		t.Errorf("closeness without distances %v, want that of 20", c)
	}
}

func TestSetZones_Replaced(t *testing.T) {
	n := &Node{}
	if n.HasZones() {
		t.Error("HasZones of an empty Node = true, want false")
	}
	if err := n.Place("early", Placement{{Zone: "node0", Resources: Resources{units.CPU: 3 * Core}}}); err != nil {
		t.Fatal(err)
	}

	three := Request{Resources: Resources{units.CPU: 3 * Core}, SingleZone: true}
	for _, step := range []struct {
		zones []Zone
		fit   Fit
	}{{newZones(4), NotNow}, {newZones(4, 4), Fits}, {nil, Never}, {[]Zone{{Name: "other", Usable: Resources{units.CPU: 4 * Core}}}, Fits}, {newZones(4), NotNow}} {
		if err := n.SetZones(step.zones); err != nil {
			t.Fatal(err)
		}

		if got := n.Fit(three); got != step.fit {
			t.Errorf("Fit with %d zones = %d, want %d", len(step.zones), got, step.fit)
		}
	}

	if !n.Remove("early") || n.Remove("early") || n.Fit(three) != Fits {
		t.Error("after Remove of the early owner the request does not fit, want its zones free again")
	}
}

func TestNode_InvalidInput(t *testing.T) {
	n := newNode(t, newZones(4)...)
	for name, zones := range map[string][]Zone{
		"nameless": {{}},
		"twice":    {{Name: "a"}, {Name: "a"}},
		"negative": {{Name: "a", Usable: Resources{units.CPU: -1}}},
		"huge":     {{Name: "a", Usable: Resources{"memory": MaxAmount + 1}}},
		"too many": make([]Zone, MaxZones+1),
	} {
		if err := n.SetZones(zones); err == nil {
			t.Errorf("SetZones(%s) succeeds, want an error", name)
		}
	}

	for name, p := range map[string]Placement{
		"nameless": {{Resources: Resources{units.CPU: Core}}},
		"twice":    {{Zone: "node0"}, {Zone: "node0"}},
		"negative": {{Zone: "node0", Resources: Resources{units.CPU: -Core}}},
		"huge":     {{Zone: "node0", Resources: Resources{units.CPU: MaxAmount + 1}}},
		"no name":  {{Zone: "node0", Resources: Resources{"": -1}}},
	} {
		if err := n.Place("pod", p); err == nil {
			t.Errorf("Place(%s) succeeds, want an error", name)
		}
	}

	if err := n.Place("", nil); err == nil {
		t.Error("Place without an owner succeeds, want an error")
	}
	if got := formatPlacement(n.Free()); got != "node0(cpu=4)" || n.Owners() != 0 {
		t.Errorf("after refused calls %s is free and there are %d owners, want node0(cpu=4) and 0", got, n.Owners())
	}
}

func TestPlace_MaxOwners(t *testing.T) {
	n := newNode(t, newZones(4)...)
	for i := range MaxOwners {
		if err := n.Place(fmt.Sprint(i), Placement{{Zone: "node0", Resources: Resources{units.CPU: MaxAmount}}}); err != nil {
			t.Fatal(err)
		}
	}

	if err := n.Place("one more", nil); err == nil {
		t.Errorf("Place of owner %d succeeds, want an error", MaxOwners+1)
	}
	if err := n.Place("0", nil); err != nil {
		t.Errorf("Place of an owner that exists: %v, want no error", err)
	}

	for i := range MaxOwners {
		n.Remove(fmt.Sprint(i))
	}

	if got := formatPlacement(n.Free()); got != "node0(cpu=4)" {
		t.Errorf("Free after all owners are removed = %s, want node0(cpu=4): a sum overflowed", got)
	}
}

func TestUsable(t *testing.T) {
	for _, c := range []struct {
		capacity, allocatable Resources
		reserved              int
		want                  string
	}{
		{capacity: Resources{units.CPU: 8000}, want: "cpu=8"},
		{capacity: Resources{units.CPU: 8000}, reserved: 2, want: "cpu=6"},
		{capacity: Resources{units.CPU: 8000}, reserved: 9, want: "cpu=0"},
		{capacity: Resources{units.CPU: 8000}, reserved: -9, want: "cpu=8"},
		{capacity: Resources{units.CPU: 8000}, allocatable: Resources{units.CPU: 7500}, reserved: 1, want: "cpu=7"},
		{capacity: Resources{units.CPU: 8000}, allocatable: Resources{units.CPU: 5500}, reserved: 1, want: "cpu=5500m"},
		{capacity: Resources{units.CPU: 8000}, allocatable: Resources{units.CPU: 9000, "memory": 7}, want: "cpu=8, memory=7"},
		{allocatable: Resources{units.CPU: 9000}, reserved: 4, want: "cpu=9"},
		{want: ""},
	} {
		if got := Usable(c.capacity, c.allocatable, c.reserved).String(); got != c.want {
			t.Errorf("Usable(%v, %v, %d) = %s, want %s", c.capacity, c.allocatable, c.reserved, got, c.want)
		}
	}
}

func TestCompareNames(t *testing.T) {
	names := []string{"b", "node10", "node2", "node02", "a1", "node", "node9999999999999999999999"}
	slices.SortFunc(names, compareNames)

	if got := strings.Join(names, " "); got != "a1 b node node02 node2 node10 node9999999999999999999999" {
		t.Errorf("names sorted with compareNames: %s, want the numbers in ascending order", got)
	}
}

// TestAssign_KeepsZonesFree checks that small requests share zones, so that whole zones stay free for large ones. gocrane's rule,
// the emptiest zone first, would leave none.
func TestAssign_KeepsZonesFree(t *testing.T) {
	n := newNode(t, newZones(8, 8, 8, 8)...)
	for i := range 8 {
		p, ok := n.Assign(Request{Resources: Resources{units.CPU: Core}, SingleZone: true})
		if !ok {
			t.Fatal("Assign of one CPU = false, want a zone")
		}

		if err := n.Place(fmt.Sprint("small", i), p); err != nil {
			t.Fatal(err)
		}
	}

	whole := Request{Resources: Resources{units.CPU: 8 * Core}, SingleZone: true}
	for i := range 3 {
		p, ok := n.Assign(whole)
		if !ok {
			t.Fatalf("after eight small ones %d whole zones are left, want 3", i)
		}

		if err := n.Place(fmt.Sprint("large", i), p); err != nil {
			t.Fatal(err)
		}
	}
}
