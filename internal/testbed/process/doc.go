// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process runs programs as child processes: in a process group of their own, with their output in a bounded log
// file and a ring of last lines, restarted with backoff on request, stopped within a bound, and never left behind.
package process
