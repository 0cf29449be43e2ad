// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cpupinning gives containers the CPUs of their own that the scheduler promised their pods, and keeps all others off them. Who gets
// which is decided in pkg/cpumanager; this package reads pods and cgroups, keeps the state file, and writes cpuset.cpus and cpuset.mems
// through the agent's journal, so that everything is undone at the end.
package cpupinning
