// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cpupinning runs containers on the CPUs that pkg/cpumanager assigns to them. It reads pods and cgroups, keeps the state file,
// and writes cpuset.cpus and cpuset.mems through the agent's journal, which restores them at the end.
// Which NUMA zones a pod gets is the scheduler's decision (internal/scheduler/noderesourcetopology); the CPUs of the machine come from
// internal/agent/topology.
package cpupinning
