// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenario replays pressure on a node in virtual time: a text file says what the node and its pods are, what they want and when
// that changes, which rules hold and what is expected of them. Tests, the documentation and the agent's --scenario share the files in
// test/scenarios/pressure. It simulates just enough of a node that actions have effects; it reads no file itself.
//
// A file has one statement to a line; words are separated by blanks, # begins a comment:
//
//	node cpus=8 memory=32Gi [disks=V] [uncounted] [interval=1s] [evictions=5/1m]
//	system cpu=300m memory=1Gi                    what is no pod
//	mark cpu|memory RATIO                         the water mark evict
//	action NAME [cooldown=5m] [step=20% [floor=10%]] [memory] [evict [grace=30s]]
//	rule NAME metric=M above=V action=NAME [trigger=1] [restore=1] [maxage=1m] [preview]
//	pod NS/NAME [cpu=V] [memory=V] [disks=V] [request=V] [limit=V] [class=C] [priority=N] [age=D] [ends=5s] [allow=ACTION,...]
//	    [elastic] [unmeasured] [protected] [keep=WHY] [sensitive] [stall=1%] [noise=2%] [cache=V] [read=V] [written=V]
//	metric NAME VALUE                             of metrics that the simulation does not have itself
//	at TIME pod NS/NAME KEY=V... | metric NAME VALUE | delete NS/NAME | rule NAME KEY=V... | drop RULE
//	at TIME lose METRIC | find METRIC | freeze | thaw | clock +D | restart | quota NS/NAME V
//	expect TIME avoided|free                      whether new pods are kept away
//	expect TIME quota NS/NAME V|none|limited      the limit of cpu in force
//	expect TIME high NS/NAME V|none|limited       the limit of memory in force
//	expect TIME used cpu|memory <V|>V
//	expect TIME waits NS/NAME <V%|>V%             the share of time that it waits for cpu
//	expect evicted none|NS/NAME...                all that were evicted, in order
//	expect grace NS/NAME D                        with which it was evicted
//	expect why TEXT                               a reason that was given at some time
//	run TIME
package scenario
