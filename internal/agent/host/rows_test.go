// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestBadRows checks that a bad row of a table discards a row, not the file.
func TestBadRows(t *testing.T) {
	const disk = "   8       0 sda 1 2 3 4 5 6 7 8 9 10\n"
	disks := map[string]string{
		disk + "   8      16 sdb 1 2\n": "sda",
		disk + "\n":                     "sda",
		disk + "   8      16 sdb x 2 3 4 5 6 7 8 9 10\n": "sda",
		"   8      16 sdb 1 2\n":                         "",
	}
	for text, want := range disks {
		found := map[string]bool{}
		err := ParseDiskstats([]byte(text), func(name []byte, _ Disk) { found[string(name)] = true })
		if got := strings.Join(slices.Sorted(maps.Keys(found)), " "); got != want || (err == nil) != (want != "") {
			t.Errorf("ParseDiskstats(%q) calls for %q, %v, want %q", text, got, err, want)
		}
	}

	const header = "Inter-|   Receive |  Transmit\n face |bytes    packets\n"
	const eth0 = "  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"
	interfaces := map[string]string{
		header + eth0 + "  eth1: 1 2\n": "eth0",
		header + "what\n" + eth0:        "eth0",
		header + "  eth1: 1 2\n":        "",
	}
	for text, want := range interfaces {
		found := map[string]bool{}
		err := ParseNetDev([]byte(text), func(name []byte, _ Interface) { found[string(name)] = true })
		if got := strings.Join(slices.Sorted(maps.Keys(found)), " "); got != want || (err == nil) != (want != "") {
			t.Errorf("ParseNetDev(%q) calls for %q, %v, want %q", text, got, err, want)
		}
	}

	for text, fails := range map[string]bool{
		"anon 1\nnew_thing 1 2 3\nworkingset -1\n": false,
		"anon x\n":       true,
		"anon\n":         true,
		"anon 1 2\n":     true,
		"other x\n":      false,
		"anon 1\nfile 2": true,
	} {
		err := ParseKeyValues([]byte(text), func([]byte, uint64) {}, "anon")
		if (err != nil) != fails {
			t.Errorf("ParseKeyValues(%q) = %v, want an error: %t", text, err, fails)
		}
	}
}
