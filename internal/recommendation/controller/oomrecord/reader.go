// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oomrecord

import (
	"context"
	"iter"
	"slices"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/oom"
)

// Ledger provides the recorded kills, oldest first.
type Ledger interface {
	Kills(ctx context.Context) ([]oom.Kill, error)
}

// Reader is a metrics.OOMReader of the ledger and another source. Kills of the ledger have the memory of the container;
// kills that only the other source has are added. Other may be nil.
type Reader struct {
	Ledger Ledger
	Other  metrics.OOMReader
}

// containerKey names a container of a pod.
type containerKey struct{ namespace, pod, container string }

// OOMKills implements metrics.OOMReader.
func (r Reader) OOMKills(ctx context.Context, w metrics.Window, namespaces []string) iter.Seq2[metrics.OOMKill, error] {
	return func(yield func(metrics.OOMKill, error) bool) {
		kills, err := r.Ledger.Kills(ctx)
		if err != nil {
			yield(metrics.OOMKill{}, err)
			return
		}

		if w.Step == 0 {
			w.Step = time.Hour
		}

		recorded := map[containerKey][]time.Time{}
		for _, k := range kills {
			if k.At.Before(w.Start) || !k.At.Before(w.End) || len(namespaces) > 0 && !slices.Contains(namespaces, k.Namespace) {
				continue
			}

			at := containerKey{k.Namespace, k.Pod, k.Container}
			recorded[at] = append(recorded[at], k.At)

			for _, owner := range k.Owners() {
				kill := metrics.OOMKill{
					Key: metrics.ContainerKey{
						Workload: workload.Ref{
							Namespace:  k.Namespace,
							APIVersion: owner.APIVersion,
							Kind:       owner.Kind,
							Name:       owner.Name,
						},
						Pod: k.Pod, Container: k.Container,
					},
					Time: k.At, Memory: k.Memory, NoLimit: k.NoLimit,
				}

				if !yield(kill, nil) {
					return
				}
			}
		}

		if r.Other == nil {
			return
		}

		for k, err := range r.Other.OOMKills(ctx, w, namespaces) {
			inLedger := func(at time.Time) bool { return !at.Before(k.Time) && at.Before(k.Time.Add(w.Step)) }
			if slices.ContainsFunc(recorded[containerKey{k.Key.Workload.Namespace, k.Key.Pod, k.Key.Container}], inLedger) {
				continue
			}

			if !yield(k, err) || err != nil {
				return
			}
		}
	}
}
