// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"strings"
	"testing"
)

func TestZones(t *testing.T) {
	o := Options{CPUs: 8, Threads: 2, MemoryMiB: 1537, Zones: []string{"0-3", "4-7"}}
	if got := o.processors(); got != "8,sockets=2,cores=2,threads=2" {
		t.Errorf("processors() = %s, want 8 CPUs in 2 sockets of 2 cores with 2 threads", got)
	}

	const want = "-object memory-backend-ram,id=memory0,size=768M -numa node,nodeid=0,cpus=0-3,memdev=memory0 " +
		"-object memory-backend-ram,id=memory1,size=769M -numa node,nodeid=1,cpus=4-7,memdev=memory1 -numa dist,src=0,dst=1,val=21"

	if got := strings.Join(zones(o), " "); got != want {
		t.Errorf("zones() =\n%s, want\n%s", got, want)
	}

	o = Options{CPUs: 4, Zones: []string{"0-3"}}
	if got := zones(o); o.processors() != "4" || got != nil {
		t.Errorf("one zone: processors() = %s, zones() = %q; want 4 and none", o.processors(), got)
	}
}
