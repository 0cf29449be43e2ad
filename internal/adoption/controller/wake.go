// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sigs.k8s.io/controller-runtime/pkg/event"

	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/pkg/oom"
)

// wakeBuffer bounds the targets that wait to be looked at for a kill. What does not fit is looked at in its turn.
const wakeBuffer = 1000

// WakeOnKills returns the targets whose containers were killed, as tell is told of them.
func WakeOnKills(tell func(func([]oom.Kill))) <-chan event.TypedGenericEvent[targetindex.Key] {
	out := make(chan event.TypedGenericEvent[targetindex.Key], wakeBuffer)
	tell(func(kills []oom.Kill) {
		for _, k := range kills {
			for _, o := range k.Owners() {
				key := targetindex.Key{Group: targetindex.GroupOf(o.APIVersion), Kind: o.Kind, Namespace: k.Namespace, Name: o.Name}
				select {
				case out <- event.TypedGenericEvent[targetindex.Key]{Object: key}:
				default:
				}
			}
		}
	})
	return out
}
