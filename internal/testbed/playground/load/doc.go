// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package load generates the workloads of the playground and the use of each of their containers at any time, past or
// present.
//
// It contains the catalog of workloads with realistic requests, the shapes of their use, and use replayed from
// traces. Every value is a pure function of the seed, the container's identity, the start of its run and the time, so
// the history that is written at the start and the live simulation agree, and a restart continues both.
//
// The pattern clock runs Speed times as fast as the clock: pattern time = Speed x Unix time. Only shapes follow it; no
// other time is scaled.
package load
