// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// rollOut changes the templates of workloads again and again, each time with a new pod in the place of the last one, and
// compares what craned then holds. It ends early, with a line in the result, where that takes too long.
func (m *measurement) rollOut(ctx context.Context) error {
	if m.rollOuts == 0 {
		return nil
	}

	boundedCtx, cancel := context.WithTimeout(ctx, m.rollOutBound)
	defer cancel()

	began := time.Now()
	first := max(1, m.rollOuts/5)

	var heaps []string
	var early, late int64
	done := 0
	for ; done < m.rollOuts; done++ {
		err := m.cluster.each(boundedCtx, m.rolled, func(ctx context.Context, w int) error { return m.cluster.roll(ctx, w, done) })
		// Only the bound of the roll-outs ends them early; the end of the benchmark is an error.
		if errors.Is(boundedCtx.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
			break
		}

		if err != nil {
			return err
		}

		logf("roll-out %d of %d of %d workloads, %v so far", done+1, m.rollOuts, m.rolled, time.Since(began).Round(time.Second))
		// A leak shows as growth between the first fifth and the last roll-out.
		if n := done + 1; n%first == 0 || n == m.rollOuts {
			if late, err = m.heapInUse(ctx); err != nil {
				return err
			}

			if early == 0 {
				early = late
			}
			heaps = append(heaps, fmt.Sprintf("%d: %.1f", n, float64(late)/(1<<20)))
		}
	}

	m.table.add(fmt.Sprintf("%d of %d roll-outs of %d workloads", done, m.rollOuts, m.rolled), time.Since(began).Round(time.Second).String(), "")
	m.table.add("  heap after a collection, MiB, after roll-out", fmt.Sprint(heaps), "")
	m.table.add(fmt.Sprintf("  growth from roll-out %d to the last", first), fmt.Sprintf("%+.1f %%", 100*(float64(late)/float64(max(1, early))-1)), "10 %")

	return m.craned.profile(ctx, m.profiles, "heap-rolled.pb.gz", "heap?gc=1")
}

// heapInUse is the heap after a collection, when what was written has arrived.
func (m *measurement) heapInUse(ctx context.Context) (int64, error) {
	if err := m.craned.alive(); err != nil {
		return 0, err
	}

	if err := sleep(ctx, 10*time.Second); err != nil {
		return 0, err
	}

	if _, err := m.craned.heap(ctx); err != nil { // What a finalizer lets go is gone with the next collection.
		return 0, err
	}

	return m.craned.heap(ctx)
}

// roll is one roll-out of one workload: its template changes, a pod of the new template runs, the last one goes. ReplicaSets
// are left out, as craned does not watch them; one pod stands for all of a workload.
func (c *cluster) roll(ctx context.Context, w, rollOut int) error {
	d := c.deployment(w)
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"rolled":"%d"}}}}}`, rollOut)
	if err := c.client.Patch(ctx, d, client.RawPatch(types.StrategicMergePatchType, []byte(patch))); err != nil {
		return err
	}

	controller := true
	named := func(rollOut int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace,
			Name:      fmt.Sprintf("%s-%08x-xxxxx", d.Name, rollOut),
			Labels:    d.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprintf("%s-%08x", d.Name, rollOut), UID: d.UID, Controller: &controller,
			}},
		}}
	}

	pod := named(rollOut)
	pod.Spec = d.Spec.Template.Spec
	if err := c.client.Create(ctx, pod); err != nil {
		return err
	}

	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", Image: "app:1", ImageID: "app@sha256:0", ContainerID: "containerd://" + pod.Name, Ready: true,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}

	if err := c.client.Status().Update(ctx, pod); err != nil || rollOut == 0 {
		return err
	}

	return client.IgnoreNotFound(c.client.Delete(ctx, named(rollOut-1), client.GracePeriodSeconds(0)))
}
