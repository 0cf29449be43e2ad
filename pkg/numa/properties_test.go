// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"crane.io/crane/pkg/units"
)

// randomZones returns zones of different sizes, some with distances.
func randomZones(r *rand.Rand, zones int) []Zone {
	out := make([]Zone, zones)
	for i := range out {
		out[i] = Zone{Name: fmt.Sprintf("node%d", 3*i), Usable: Resources{
			units.CPU: Amount(r.IntN(17))*Core + Amount(r.IntN(2)*500), "memory": Amount(r.IntN(64)) << 30,
		}}

		if r.IntN(3) > 0 {
			out[i].Distances = map[string]int{}
			for j := range out {
				out[i].Distances[fmt.Sprintf("node%d", 3*j)] = 10 + r.IntN(30)
			}
		}
	}

	return out
}

func randomRequest(r *rand.Rand) Request {
	req := Request{Resources: Resources{units.CPU: Amount(1+r.IntN(24)) * Core}, SingleZone: r.IntN(2) == 0}
	if r.IntN(2) == 0 {
		req.Resources["memory"] = Amount(r.IntN(40)) << 30
	}

	return req
}

// minimalZones returns the smallest number of zones that have enough, by comparing all sets.
func minimalZones(n *Node, req Request) int {
	best := 0
	for mask := 1; mask < 1<<len(n.capacity.zones); mask++ {
		size := bits.OnesCount(uint(mask))
		if best != 0 && size >= best || req.SingleZone && size > 1 {
			continue
		}

		enough := true
		for kind, want := range req.Resources {
			for i, s := range n.Free() {
				if mask>>i&1 == 1 {
					want -= s.Resources[kind]
				}
			}

			enough = enough && want <= 0
		}

		if enough {
			best = size
		}
	}

	return best
}

// TestAssign_Random places and removes pods on random machines. Every assignment must equal the request, lie within
// what is free, and use as few zones as possible; Fit must agree; removing all must restore the empty machine.
func TestAssign_Random(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := newNode(t, randomZones(r, 1+r.IntN(7))...)
		empty := n.Free()

		var owners []string
		for step := range 40 {
			if len(owners) > 0 && r.IntN(3) == 0 {
				i := r.IntN(len(owners))
				n.Remove(owners[i])
				owners = slices.Delete(owners, i, i+1)
				continue
			}

			req := randomRequest(r)
			want := minimalZones(n, req)

			p, ok := n.Assign(req)
			if ok != (want > 0) || ok != (n.Fit(req) == Fits) {
				t.Fatalf("seed %d: assign says %v and fit %d, all sets say %d, for %v", seed, ok, n.Fit(req), want, req)
			}
			if !ok {
				continue
			}

			verifyPlacement(t, n, req, p)
			if len(p) != want {
				t.Fatalf("seed %d: %d zones, %d are enough: %s for %v", seed, len(p), want, formatPlacement(p), req)
			}

			owner := fmt.Sprint("pod", step)
			if err := n.Place(owner, p); err != nil {
				t.Fatal(err)
			}

			owners = append(owners, owner)
		}

		for _, o := range owners {
			n.Remove(o)
		}

		if !reflect.DeepEqual(n.Free(), empty) {
			t.Fatalf("seed %d: Free after all owners are removed = %v, want %v", seed, n.Free(), empty)
		}
	}
}

// verifyPlacement fails if p is not the request or more than is free.
func verifyPlacement(t *testing.T, n *Node, req Request, p Placement) {
	t.Helper()

	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}

	sum := Resources{}
	for _, s := range p {
		i := slices.IndexFunc(n.Free(), func(f Share) bool { return f.Zone == s.Zone })
		for kind, a := range s.Resources {
			sum[kind] += a
			if free := n.Free()[i].Resources[kind]; a > free || a <= 0 {
				t.Fatalf("the placement has %d of %s in %s, want more than 0 and at most the free %d", a, kind, s.Zone, free)
			}
		}
	}

	for kind, a := range req.Resources {
		if sum[kind] != a {
			t.Fatalf("the placement has %d of %s, want %d", sum[kind], kind, a)
		}
	}
}

// TestAssign_ManyZones checks that assignments beyond the exhaustive search are exact and within what is free.
func TestAssign_ManyZones(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		n := newNode(t, randomZones(r, maxExhaustiveZones+1+r.IntN(80))...)

		req := Request{Resources: Resources{units.CPU: Amount(20+r.IntN(200)) * Core, "memory": Amount(r.IntN(200)) << 30}}
		p, ok := n.Assign(req)
		if ok != (n.Fit(req) == Fits) {
			t.Fatalf("Assign fits %v but Fit = %d, want the same answer", ok, n.Fit(req))
		}

		if ok {
			verifyPlacement(t, n, req, p)
		}
	}
}

// TestUndo compares the node before and after nested checkpoints.
func TestUndo(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		n := newNode(t, randomZones(r, 1+r.IntN(4))...)
		act := func() {
			owner := fmt.Sprint("pod", r.IntN(6))
			if r.IntN(3) == 0 {
				n.Remove(owner)
				return
			}

			if err := n.Place(owner, Placement{{Zone: fmt.Sprintf("node%d", 3*r.IntN(5)), Resources: Resources{units.CPU: Amount(r.IntN(9000)), "memory": Amount(r.IntN(99))}}}); err != nil {
				t.Fatal(err)
			}
		}

		for range 10 {
			act()
		}

		outer := n.Clone()
		m1 := n.Checkpoint()

		for range 10 {
			act()
		}

		inner := n.Clone()
		m2 := n.Checkpoint()

		for range 10 {
			act()
		}

		n.Undo(m2)
		expectEqual(t, n, inner)
		n.Undo(m1)
		expectEqual(t, n, outer)
		act()

		if len(n.undoLog) != 0 {
			t.Fatalf("the undo log has %d entries after Undo of the first checkpoint, want none", len(n.undoLog))
		}
	}
}

func expectEqual(t *testing.T, a, b *Node) {
	t.Helper()

	if !reflect.DeepEqual(a.capacity.zones, b.capacity.zones) || len(a.placements)+len(b.placements) > 0 && !reflect.DeepEqual(a.placements, b.placements) {
		t.Fatalf("got %+v %v\nwant %+v %v", a.capacity.zones, a.placements, b.capacity.zones, b.placements)
	}
}

func TestCommit(t *testing.T) {
	n := newNode(t, newZones(4)...)
	n.Checkpoint()

	if err := n.Place("pod", Placement{{Zone: "node0", Resources: Resources{units.CPU: Core}}}); err != nil {
		t.Fatal(err)
	}

	n.Commit()
	if n.recording || len(n.undoLog) != 0 || formatPlacement(n.Free()) != "node0(cpu=3)" {
		t.Errorf("after Commit: recording %v, %d undo entries, %s free, want none recorded and node0(cpu=3)", n.recording, len(n.undoLog), formatPlacement(n.Free()))
	}
}

func TestClone(t *testing.T) {
	n := newNode(t, newZones(4, 4)...)
	c := n.Clone()
	if err := c.Place("pod", Placement{{Zone: "node1", Resources: Resources{units.CPU: 3 * Core}}}); err != nil {
		t.Fatal(err)
	}

	if formatPlacement(n.Free()) != "node0(cpu=4) node1(cpu=4)" || formatPlacement(c.Free()) != "node0(cpu=4) node1(cpu=1)" {
		t.Errorf("after Place on the clone the original has %s free and the clone %s, want only the clone changed", formatPlacement(n.Free()), formatPlacement(c.Free()))
	}
}

// FuzzNode applies arbitrary operations: they must not panic, and removing all owners must restore the node.
func FuzzNode(f *testing.F) {
	f.Add([]byte{4, 4, 1, 0, 3, 1, 9, 2, 0})
	f.Add([]byte{255, 0, 0, 255, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < 3 {
			return
		}

		n := newNode(t, newZones(int(in[0]), int(in[1]), int(in[2]))...)
		empty := n.Free()

		for ; len(in) >= 3; in = in[3:] {
			owner := fmt.Sprint(in[0] % 16)
			switch in[1] % 4 {
			case 0:
				n.Remove(owner)

			case 1:
				m := n.Checkpoint()
				before := n.Clone()
				_ = n.Place(owner, Placement{{Zone: "node1", Resources: Resources{units.CPU: Amount(in[2]) << 40}}})
				n.Undo(m)
				expectEqual(t, n, before)

			default:
				n.Remove(owner)
				req := Request{Resources: Resources{units.CPU: Amount(in[2]) * Core}, SingleZone: in[1]%4 == 2}
				if p, ok := n.Assign(req); ok {
					if in[2] > 0 {
						verifyPlacement(t, n, req, p)
					}

					if err := n.Place(owner, p); err != nil {
						t.Fatal(err)
					}
				}
			}
		}

		for i := range 16 {
			n.Remove(fmt.Sprint(i))
		}

		if !reflect.DeepEqual(n.Free(), empty) {
			t.Fatalf("Free after all owners are removed = %v, want %v", n.Free(), empty)
		}
	})
}

func BenchmarkFit(b *testing.B) {
	n := newNode(b, newZones(32, 32, 32, 32)...)
	for i := range 30 {
		if p, ok := n.Assign(Request{Resources: Resources{units.CPU: 4 * Core}}); ok {
			_ = n.Place(fmt.Sprint(i), p)
		}
	}

	req := Request{Resources: Resources{units.CPU: 2 * Core}, SingleZone: true}
	b.ReportAllocs()

	for b.Loop() {
		n.Fit(req)
	}
}

func BenchmarkAssign(b *testing.B) {
	n := newNode(b, randomZones(rand.New(rand.NewPCG(1, 1)), 8)...)
	req := Request{Resources: Resources{units.CPU: 24 * Core}}
	b.ReportAllocs()

	for b.Loop() {
		n.Assign(req)
	}
}
