// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package substitute keeps Substitutes up to date: stand-ins for workloads, which an HPA may scale in their place so that
// people see what it would do.
//
// An HPA reads three things of what it scales: spec.replicas, which it compares and writes; status.replicas, which it divides
// totals by; and the selector of the pods that it looks at. The last two are the workload's. The first is what the HPA asked
// for, until that is stale: where a metric is within the HPA's tolerance, the HPA answers with spec.replicas itself, so what
// it once asked for would stay for ever. So an answer that has differed for five minutes is set back to what the workload
// has, and the HPA answers anew.
package substitute
