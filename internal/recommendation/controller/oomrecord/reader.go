// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oomrecord

import (
	"context"
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
func (r Reader) OOMKills(ctx context.Context, w metrics.Window, namespaces []string, visit func(metrics.OOMKill) error) error {
	kills, err := r.Ledger.Kills(ctx)
	if err != nil {
		return err
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
			err := visit(metrics.OOMKill{
				Key: metrics.ContainerKey{
					Workload: workload.Ref{Namespace: k.Namespace, APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name},
					Pod:      k.Pod, Container: k.Container,
				},
				Time: k.At, Memory: k.Memory,
			})
			if err != nil {
				return err
			}
		}
	}
	if r.Other == nil {
		return nil
	}
	return r.Other.OOMKills(ctx, w, namespaces, func(k metrics.OOMKill) error {
		for _, at := range recorded[containerKey{k.Key.Workload.Namespace, k.Key.Pod, k.Key.Container}] {
			if !at.Before(k.Time) && at.Before(k.Time.Add(w.Step)) {
				return nil // The ledger has this kill.
			}
		}
		return visit(k)
	})
}
