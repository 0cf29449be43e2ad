// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package load says which workloads run in the playground and what each of their containers uses at any time, past or
// present.
//
// What belongs in: the catalogue of workloads with the requests that people give them, the shapes of their use, and use
// read from traces. Every value is a pure function of the seed, the container's identity, the start of its run and the
// time, so the history that is written at the start and the live simulation agree, and a restart continues both. It must
// not know how use is measured or exported (internal/testbed/simnode, internal/testbed/playground/clusterseries).
//
// The pattern clock runs Speed times as fast as the clock: pattern time = Speed x Unix time. Only shapes follow it; no
// other time is ever scaled.
package load
