// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenario replays pressure on a node in virtual time. A text file describes the node, its pods, their demands over time, the rules
// and the expected outcome. Tests, the documentation and the agent's --scenario flag share the files in test/scenarios/pressure. The
// simulated node is just detailed enough for actions to have effects; the package reads no files.
//
// A file has one statement per line; words are separated by blanks, and # starts a comment:
//
//	node cpus=8 memory=32Gi [disks=V] [uncounted] [interval=1s] [evictions=5/1m]
//	system cpu=300m memory=1Gi                    the use outside pods
//	mark cpu|memory RATIO                         the water mark of evictions
//	action NAME [cooldown=5m] [step=20% [floor=10%]] [memory] [evict [grace=30s]]
//	rule NAME metric=M above=V action=NAME [trigger=1] [restore=1] [maxage=1m] [preview]
//	pod NS/NAME [cpu=V] [memory=V] [disks=V] [request=V] [limit=V] [class=C] [priority=N] [age=D] [ends=5s] [allow=ACTION,...]
//	    [elastic] [unmeasured] [protected] [keep=WHY] [sensitive] [stall=1%] [noise=2%] [cache=V] [read=V] [written=V]
//	metric NAME VALUE                             a metric that is not simulated
//	at TIME pod NS/NAME KEY=V... | metric NAME VALUE | delete NS/NAME | rule NAME KEY=V... | drop RULE
//	at TIME lose METRIC | find METRIC | freeze | thaw | clock +D | restart | quota NS/NAME V
//	expect TIME avoided|free                      whether new pods are kept away
//	expect TIME quota NS/NAME V|none|limited      the CPU limit in force
//	expect TIME high NS/NAME V|none|limited       the memory limit in force
//	expect TIME used cpu|memory <V|>V
//	expect TIME waits NS/NAME <V%|>V%             the share of time the pod waits for CPU
//	expect evicted none|NS/NAME...                all evicted pods in order
//	expect grace NS/NAME D                        the grace period of an eviction
//	expect why TEXT                               a part of a reason given at any time
//	run TIME
package scenario
