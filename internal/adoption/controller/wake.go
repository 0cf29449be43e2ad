// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sigs.k8s.io/controller-runtime/pkg/event"

	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/oom"
)

// wakeBuffer bounds the targets that wait for a reconciliation after an OOM kill. Further ones are reconciled at their next turn.
const wakeBuffer = 1000

// WakeOnKills returns a channel of the targets whose containers were OOM-killed. subscribe registers a function that receives new
// kills.
func WakeOnKills(subscribe func(func([]oom.Kill))) <-chan event.TypedGenericEvent[targetindex.Key] {
	out := make(chan event.TypedGenericEvent[targetindex.Key], wakeBuffer)
	subscribe(func(kills []oom.Kill) {
		for _, k := range kills {
			for _, o := range k.Owners() {
				key := targetindex.Key{
					Group:     workload.GroupOf(o.APIVersion, o.Kind),
					Kind:      o.Kind,
					Namespace: k.Namespace,
					Name:      o.Name,
				}

				select {
				case out <- event.TypedGenericEvent[targetindex.Key]{Object: key}:
				default:
				}
			}
		}
	})

	return out
}
