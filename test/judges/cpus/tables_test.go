// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"testing"

	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"

	"crane.io/crane/pkg/numa"
)

// kubeletCase is a case of the kubelet's tables: its cpu_assignment_test.go (Kubernetes 1.36), and where said policy_static_test.go.
type kubeletCase struct {
	machine machine
	free    string
	n       int
	want    string // the kubelet's answer, empty if it refuses
	// differs is why Crane's answer is another one; then the agent's in the zones of want is compared, if there is one.
	differs string
}

// The machines of the kubelet's tables.
var (
	oneSocket   = newMachine("one socket", 1, 1, 1, 4, 2)
	twoSockets  = alternating("two sockets", 12)
	fourZones   = newMachine("four zones", 2, 2, 1, 10, 2)
	eightZones  = newMachine("eight zones", 2, 4, 1, 16, 2)
	caches      = newMachine("four caches", 1, 1, 4, 4, 1)
	cachesHT    = newMachine("two caches with threads", 1, 1, 2, 4, 2)
	cachesZones = newMachine("two caches in each zone", 1, 2, 2, 4, 1)
	smallCaches = newMachine("caches of 8 CPUs", 1, 1, 16, 4, 2)
)

// alternating returns a machine of two sockets whose CPUs alternate between them.
func alternating(name string, cpus int) machine {
	m := machine{name: name, cpus: map[int]topology.CPUInfo{}}
	for cpu := range cpus {
		m.cpus[cpu] = topology.CPUInfo{CoreID: cpu % (cpus / 2), SocketID: cpu % 2, NUMANodeID: cpu % 2}
	}

	return m
}

// cachesOfSockets returns a machine with two sockets of two caches each in one zone.
func cachesOfSockets() machine {
	m := newMachine("two sockets in a zone", 2, 1, 2, 4, 1)
	for cpu, info := range m.cpus {
		info.NUMANodeID = 0
		m.cpus[cpu] = info
	}

	return m
}

func commonCases() []kubeletCase {
	return []kubeletCase{
		{machine: oneSocket, free: "0,2,4,6", n: 5},
		{machine: oneSocket, free: "0-7", n: 1, want: "0"},
		{machine: oneSocket, free: "1,3,5-7", n: 1, want: "6"},
		{machine: oneSocket, free: "0-7", n: 2, want: "0,4"},
		{machine: oneSocket, free: "0-7", n: 8, differs: "a CPU remains for containers that share"},
		{machine: oneSocket, free: "0-3,6", n: 2, want: "2,6"},
		{machine: twoSockets, free: "0-11", n: 6, want: "0,2,4,6,8,10"},
		{machine: fourZones, free: "0-79", n: 40, want: "0-19,40-59"},
		{machine: fourZones, free: "0-79", n: 20, want: "0-9,40-49"},
		{machine: fourZones, free: "10-39,50-79", n: 20, want: "10-19,50-59"},
		{machine: fourZones, free: "0-79", n: 60, want: "0-29,40-69"},
		{machine: fourZones, free: "1-39,41-79", n: 60, want: "10-39,50-79"},
	}
}

func packedCases() []kubeletCase {
	return append(commonCases(),
		kubeletCase{machine: twoSockets, free: "1-5,7-11", n: 1, want: "2"},
		kubeletCase{machine: twoSockets, free: "0-11", n: 8, want: "0,2,4,6,8,10,1,7"},
		kubeletCase{machine: fourZones, free: "0-79", n: 64, want: "0-31,40-71"},
	)
}

func distributedCases() []kubeletCase {
	return append(commonCases(),
		kubeletCase{machine: twoSockets, free: "0-11", n: 8, want: "0-3,6-9"},
		kubeletCase{machine: fourZones, free: "0-79", n: 64, want: "0-7,10-17,20-27,30-37,40-47,50-57,60-67,70-77"},
		kubeletCase{machine: fourZones, free: "0-79", n: 48, want: "0-7,10-17,20-27,40-47,50-57,60-67"},
		kubeletCase{machine: fourZones, free: "1-29,32-39,41-69,72-79", n: 48, want: "1-8,10-17,20-27,41-48,50-57,60-67"},
		kubeletCase{machine: fourZones, free: "2-29,31-39,42-69,71-79", n: 48, want: "10-17,20-27,31-38,50-57,60-67,71-78"},
		kubeletCase{machine: fourZones, free: "0-2,10-12,20-22,30-32,40-41,50-51,60-61,70-71", n: 16, want: "0-1,10-11,20-21,30-31,40-41,50-51,60-61,70-71"},
		kubeletCase{machine: twoSockets, free: "1-5,7-11", n: 1, want: "1"},
		kubeletCase{machine: fourZones, free: "0-79", n: 26, want: "0-6,10-16,40-45,50-55"},
		kubeletCase{machine: fourZones, free: "0-79", n: 26, want: "0-6,10-15,40-46,50-55"},
		kubeletCase{machine: fourZones, free: "0-79", n: 62, want: "0-7,10-17,20-27,30-37,40-47,50-57,60-66,70-76"},
		kubeletCase{machine: fourZones, free: "0-79", n: 62, want: "0-7,10-17,20-27,30-36,40-47,50-57,60-67,70-76"},
		kubeletCase{machine: fourZones, free: "0-8,10-18,20-39,40-48,50-58,60-79", n: 62, want: "0-7,10-17,20-27,30-37,40-46,50-56,60-67,70-77"},
		kubeletCase{machine: fourZones, free: "0-8,10-18,20-39,40-48,50-58,60-79", n: 62, want: "0-7,10-16,20-27,30-37,40-47,50-56,60-67,70-77"},
		kubeletCase{machine: fourZones, free: "0-3,10-13,20-23,30-36,40-43,50-53,60-63,70-76", n: 34, want: "0-3,10-13,20-23,30-34,40-43,50-53,60-63,70-74"},
		kubeletCase{
			machine: eightZones, n: 28, want: "43-47,75-79,96,101-105,171-174,203-206,229-232",
			free: "0,128,30,31,158,159,43-47,171-175,62,63,190,191,75-79,203-207,94,96,222,223,101-111,229-239,126,127,254,255",
		},
	)
}

func cacheCases() []kubeletCase {
	return []kubeletCase{
		{machine: caches, free: "1-15", n: 10, want: "1,2,4-11"},
		{machine: cachesOfSockets(), free: "0-15", n: 4, differs: "a CPU remains for containers that share, which this case does not need: see the next one"},
		{machine: cachesOfSockets(), free: "1-15", n: 4, want: "4-7"},
		{machine: cachesOfSockets(), free: "2-15", n: 6, want: "2-7"},
		{machine: cachesOfSockets(), free: "8-15", n: 4, want: "8-11"},
		{machine: cachesZones, free: "3,4-8,12", n: 2, want: "4,5", differs: "the scheduler chooses the zone with the fewest free CPUs and does not know its caches"},
		{machine: cachesHT, free: "2-7,10-15", n: 6, want: "4-6,12-14"},
		{machine: cachesHT, free: "1-7,9-15", n: 10, want: "4-7,12-15,1,9"},
		// Of policy_static_test.go.
		{machine: smallCaches, free: "2-63,66-127", n: 3, want: "2,3,66"},
		{machine: smallCaches, free: "2-63,65-127", n: 3, want: "2,65,66"},
		{machine: smallCaches, free: "2-63,65-127", n: 4, want: "4,5,68,69"},
		{machine: smallCaches, free: "2-63,65-127", n: 11, want: "2,65,66,4-7,68-71"},
		{machine: smallCaches, free: "2-63,66-127", n: 2, want: "2,66"},
		{machine: smallCaches, free: "2,3,8-63,66,67,72-127", n: 12, want: "2,3,8-11,66,67,72-75"},
	}
}

// TestKubeletTables compares the kubelet's tables: no case is worse in NUMA nodes, sockets, cores in part and L3 caches, in this order. The
// tables' cases of no CPU are left out, because a container without whole CPUs has none.
func TestKubeletTables(t *testing.T) {
	for table, cases := range map[string][]kubeletCase{"packed": packedCases(), "distributed": distributedCases(), "L3": cacheCases()} {
		better := 0
		for _, c := range cases {
			free, err := numa.ParseCPUSet(c.free)
			if err != nil {
				t.Fatal(err)
			}

			want, err := numa.ParseCPUSet(c.want)
			if err != nil {
				t.Fatal(err)
			}

			shares, ok := c.machine.chooseZones(t, free, c.n)
			if c.differs != "" {
				shares = c.machine.layout(t).CountByZone(want)
				ok = c.want != ""
			}

			if ok != (c.want != "") {
				t.Errorf("%s, %s: %d of %s fits %t, want %t", table, c.machine.name, c.n, free, ok, c.want != "")
			}

			if !ok {
				continue
			}

			got := c.machine.assign(t, free, shares, c.n)
			switch result := compare(c.machine.judge(got), c.machine.judge(want)); {
			case result > 0:
				t.Errorf("%s, %s: %d of %s is %s, %+v, want %s, %+v, or better", table, c.machine.name, c.n, free, got, c.machine.judge(got), want, c.machine.judge(want))
			case result < 0:
				better++
				t.Logf("%s, %s: %d of %s is %s, %+v, better than %s, %+v", table, c.machine.name, c.n, free, got, c.machine.judge(got), want, c.machine.judge(want))
			}
		}

		t.Logf("%s: %d cases, %d better", table, len(cases), better)
	}
}
