// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"crane.io/crane/pkg/cpumanager"
	"crane.io/crane/pkg/numa"
)

func testAssignments() []cpumanager.Assignment {
	return []cpumanager.Assignment{
		{ID: cpumanager.ID{Pod: "p", Container: "a"}, Policy: numa.PolicyExclusive, CPUs: numa.NewCPUSet(1, 2, 9), Zones: map[string]int{"node0": 3}},
		{ID: cpumanager.ID{Pod: "p", Container: "b"}, Policy: numa.PolicyNUMA, Zones: map[string]int{"node0": 1, "node2": 2}},
	}
}

func TestState(t *testing.T) {
	content, err := encodeState(testAssignments())
	if err != nil {
		t.Fatal(err)
	}

	if got, err := parseState(content); err != nil || !reflect.DeepEqual(got, testAssignments()) {
		t.Errorf("parseState = %+v, %v, want %+v", got, err, testAssignments())
	}

	for want, bad := range map[string]string{
		"invalid JSON":            string(content[:len(content)-3]),
		"reads up to 1":           strings.Replace(string(content), `"version":1`, `"version":2`, 1),
		"checksum does not match": strings.Replace(string(content), "1-2,9", "1-2,8", 1),
		"bytes, at most":          strings.Repeat(" ", maxStateBytes) + "{}",
		"has version 0":           "{}",
		"of gocrane":              `{"policyName":"static","defaultCpuSet":"0-3","entries":{"p":{"a":"3-1"}}}`,
		"defaultCpuSet":           `{"policyName":"static","defaultCpuSet":"x"}`,
		"cannot unmarshal":        `{"policyName":"static","entries":[]}`,
		"names no container":      `{"policyName":"static","defaultCpuSet":"","entries":{"":{"a":"1"}}}`,
		"containers, at most":     `{"policyName":"static","defaultCpuSet":"","entries":{"p":{` + manyEntries(maxAssignments+1) + `}}}`,
	} {
		if got, err := parseState([]byte(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %d holdings, %v, want %q", bad, len(got), err, want)
		}
	}
}

func manyEntries(n int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf(`"c%d":"1"`, i)
	}

	return strings.Join(parts, ",")
}

// TestGocraneState reads checkpoint V2 of gocrane's agent, whose checksum is not verified.
func TestGocraneState(t *testing.T) {
	got, err := parseState([]byte(`{"policyName":"static","defaultCpuSet":"0,4-63","entries":{"0f0e":{"main":"1-2","side":"1-2"},"aa":{"x":"3"}},"checksum":4162093546}`))
	if err != nil || len(got) != 3 {
		t.Fatalf("parseState = %+v, %v, want 3 assignments", got, err)
	}

	want := cpumanager.Assignment{ID: cpumanager.ID{Pod: "0f0e", Container: "side"}, CPUs: numa.NewCPUSet(1, 2)}
	if !reflect.DeepEqual(got[1], want) {
		t.Errorf("%+v, want %+v", got[1], want)
	}
}

func TestReadState(t *testing.T) {
	path := filepath.Join(t.TempDir(), StateFile)
	if got, found, err := readState(path); got != nil || found || err != nil {
		t.Errorf("readState without a file = %v, %t, %v, want none", got, found, err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}

	if got, _, err := readState(path); err == nil {
		t.Errorf("readState of a directory = %v, want an error", got)
	}
}

func FuzzParseState(f *testing.F) {
	own, err := encodeState(testAssignments())
	if err != nil {
		f.Fatal(err)
	}

	f.Add(own)
	f.Add([]byte(`{"policyName":"static","defaultCpuSet":"0-3","entries":{"p":{"a":"1-2"}},"checksum":1}`))
	f.Add([]byte(`{"version":1,"checksum":0,"content":null}`))

	f.Fuzz(func(t *testing.T, content []byte) {
		assignments, err := parseState(content)
		if err != nil {
			return
		}

		again, err := encodeState(assignments)
		if err != nil {
			t.Fatal(err)
		}

		if back, err := parseState(again); err != nil || len(back) != len(assignments) {
			t.Fatalf("%q became %q: %v; want %d assignments", content, again, err, len(assignments))
		}

		// Whatever was accepted can be requested and assigned.
		layout, err := numa.NewLayout([]numa.Thread{{CPU: 0, Zone: "node0"}, {CPU: 1, Core: 1, Zone: "node0"}})
		if err != nil {
			t.Fatal(err)
		}

		plan := cpumanager.Assign(cpumanager.Machine{Layout: layout}, assignments, requestsForAssignments(assignments))
		if plan.Shared == (numa.CPUSet{}) {
			t.Fatalf("%q leaves no shared CPU, want at least one", content)
		}
	})
}
