// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topologyconv

import (
	"reflect"
	"strings"
	"testing"

	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

// TestEncodeResult checks the annotation byte for byte, since gocrane's agents read it.
func TestEncodeResult(t *testing.T) {
	p := numa.Placement{
		{Zone: "node0", Resources: numa.Resources{units.CPU: 4 * numa.Core}},
		{Zone: "node1", Resources: numa.Resources{units.CPU: 2 * numa.Core, "memory": 1 << 30, "example.com/gpu": 1, "hugepages-2Mi": 4 << 20}},
	}
	const wire = `[{"name":"node0","type":"Node","resources":{"capacity":{"cpu":"4"}}},` +
		`{"name":"node1","type":"Node","resources":{"capacity":{"cpu":"2","example.com/gpu":"1","hugepages-2Mi":"4Mi","memory":"1Gi"}}}]`

	got, err := EncodeResult(p)
	if err != nil || got != wire {
		t.Errorf("wrote %s (%v)\nwant  %s", got, err, wire)
	}

	back, err := DecodeResult(wire)
	if err != nil || !reflect.DeepEqual(back, p) {
		t.Errorf("DecodeResult(%s) = %v, %v, want %v", wire, back, err, p)
	}
}

func TestDecodeResult_Invalid(t *testing.T) {
	for in, want := range map[string]string{
		``:     "decoding zones",
		`null`: "",
		`{}`:   "decoding zones",
		"\x00": "decoding zones",
		`[{}]`: "names no zone",
		`[{"name":"node0","type":"Socket","resources":{"capacity":{"cpu":"4"}}}]`:   "",
		`[{"name":"node0"},{"name":"node0"}]`:                                       "is listed twice",
		`[{"name":"node0","resources":{"capacity":{"cpu":"-1"}}}]`:                  "out of range",
		`[{"name":"node0","resources":{"capacity":{"cpu":"1e308"}}}]`:               "of the order of",
		`[{"name":"node0","resources":{"capacity":{"memory":"1e2000000000"}}}]`:     "of the order of",
		`[{"name":"node0","resources":{"capacity":{"memory":"8Ei"}}}]`:              "out of range",
		`[{"name":"node0","resources":{"capacity":{"cpu":"NaN"}}}]`:                 "decoding zones",
		`[{"name":"node0","resources":{"capacity":{"cpu":"0.5","memory":"1e-9"}}}]`: "",
		"[" + strings.Repeat(`{"name":"node0"},`, 5000) + `{"name":"node1"}]`:       "bytes, at most",
	} {
		_, err := DecodeResult(in)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", in, err, want)
		}
	}
}

func FuzzDecodeResult(f *testing.F) {
	f.Add(`[{"name":"node0","type":"Node","resources":{"capacity":{"cpu":"4","memory":"1Gi"}}}]`)
	f.Add(`[{"name":"node0","resources":{"capacity":{"cpu":"1e999999999"}}}]`)
	f.Fuzz(func(t *testing.T, in string) {
		p, err := DecodeResult(in)
		if err != nil {
			return
		}

		// Accepted placements can be placed and encoded again.
		var n numa.Node
		if err := n.Place("pod", p); err != nil {
			t.Fatalf("Place of the decoded %q: %v, want no error", in, err)
		}

		out, err := EncodeResult(p)
		if err != nil {
			t.Fatalf("EncodeResult of the decoded %q: %v, want no error", in, err)
		}

		if back, err := DecodeResult(out); err != nil || len(back) != len(p) {
			t.Fatalf("%q became %q: %d shares, %v, want %d", in, out, len(back), err, len(p))
		}
	})
}
