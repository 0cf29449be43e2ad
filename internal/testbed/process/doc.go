// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process runs other programs as children of this one: started in a process group of their own, their output kept
// in a bounded log file and in a ring of last lines, restarted with back-off when asked, stopped within a bound, and never
// left behind. It must not know what the programs are.
package process
