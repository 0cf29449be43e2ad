// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rightsize computes requests and limits of containers, with their reasons, from usage and a policy.
//
// Usage:
//
//	profile := rightsize.NewProfile()
//	profile.AddCPU(rightsize.Usage{Pod: "api-1", Series: s})    // any number of pods and days, in any order
//	profile.AddMemory(rightsize.Usage{Pod: "api-1", Series: m})
//	policy, err := rightsize.PolicyByName("default")            // or ParsePolicy, or GocranePolicy
//	r := rightsize.Recommend(rightsize.Input{Container: "app", Profile: profile, Current: current, Now: now}, policy)
//	switch r.CPU.Status { case rightsize.Ready: ... }
//
// A Profile holds one small sketch per day in UTC and no samples, so that ten thousand containers fit in memory and a
// finished day can be cached with MarshalBinary and merged later. Everything is a plain value and nothing reads a clock: the
// same Recommend runs in the controller, in the command line tool and in a replay of history.
//
// Reading usage, Kubernetes objects and applying recommendations do not belong here.
package rightsize
