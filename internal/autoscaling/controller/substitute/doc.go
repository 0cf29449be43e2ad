// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package substitute is the controller of Substitutes, which an HPA scales in place of a workload to show what it would do.
//
// An HPA reads three fields of its target: spec.replicas, which it compares and writes; status.replicas, which it divides totals by;
// and the selector of the pods. The last two are copied from the workload. The first is written by the HPA and may become stale:
// where a metric is within the tolerance, the HPA returns spec.replicas unchanged, so an old decision would stay for ever. Therefore
// a value that has differed from the workload for five minutes is reset to that of the workload, and the HPA decides again.
package substitute
