// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// returnWindow is how long moves are remembered. With the limit of moves in an hour it bounds their number.
const returnWindow = 24 * time.Hour

// departure is a workload and a node that a pod of it was moved off.
type departure struct{ workload, node string }

// departureRecord is the last move of a departure, and whether a pod of the workload has come back since.
type departureRecord struct {
	at       time.Time
	returned bool
}

func departureOf(pod *corev1.Pod) departure {
	return departure{workload: workloadOf(pod), node: pod.Spec.NodeName}
}

// recordReturns records which pods of a hot node were created after a pod of their workload was moved off it: the
// scheduler prefers the node for them, and a further move would only disturb them.
func (c *Controller) recordReturns(pods []*corev1.Pod) {
	for _, pod := range pods {
		if r := c.departures[departureOf(pod)]; r != nil && !pod.CreationTimestamp.Time.Before(r.at) {
			r.returned = true
		}
	}
}
