// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rightsize decides what a container should request: use and policy in, requests and limits with their reasons
// out.
//
// The way through it:
//
//	profile := rightsize.NewProfile()
//	profile.AddCPU(rightsize.Usage{Pod: "api-1", Series: s})    // any number of pods and days, in any order
//	profile.AddMemory(rightsize.Usage{Pod: "api-1", Series: m})
//	policy, err := rightsize.PolicyByName("default")            // or ParsePolicy, or GocranePolicy
//	r := rightsize.Recommend(rightsize.Input{Container: "app", Profile: profile, Current: current, Now: now}, policy)
//	switch r.CPU.Status { case rightsize.Ready: ... }
//
// A Profile keeps one small sketch for each day in UTC and never samples, so ten thousand containers fit in memory and a
// finished day can be cached with MarshalBinary and merged again later. Everything is a plain value, nothing here reads
// a clock, and the same Recommend runs in the controller, in the command line tool and in a replay over the past.
//
// The package must not know where use comes from, what Kubernetes objects look like or how a recommendation is applied.
package rightsize
