// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	policyv1alpha1 "crane.io/crane/api/policy/v1alpha1"
	topology "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
)

const (
	writers = 16
	// changing is how often each node's load annotations change.
	changing = time.Minute
)

// prepare installs the definitions and the admission policies, makes the nodes with their zones and keeps their annotations changing.
func (b *bench) prepare() {
	b.Helper()

	ctx := b.Context()
	objects, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		b.Fatal(err)
	}

	applier, err := manifest.NewApplier(b.control.Config(), "bench")
	if err != nil {
		b.Fatal(err)
	}

	for _, o := range objects {
		switch {
		case o.GetKind() == "CustomResourceDefinition", strings.Contains(o.GetKind(), "AdmissionPolicy"):
			if err := applier.Apply(ctx, o); err != nil {
				b.Fatal(err)
			}
		case o.GetKind() == "ConfigMap" && o.GetName() == "crane-node-load-policy":
			data, _ := o.Object["data"].(map[string]any)
			text, _ := data["policy.yaml"].(string)
			if err := os.WriteFile(filepath.Join(b.dir, "policy.yaml"), []byte(text), 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}

	metrics := b.metrics()
	scheme := runtime.NewScheme()
	if err := topology.AddToScheme(scheme); err != nil {
		b.Fatal(err)
	}

	topologies, err := ctrlclient.New(b.control.Config(), ctrlclient.Options{Scheme: scheme})
	if err != nil {
		b.Fatal(err)
	}

	b.each(b.size.nodes, func(i int) error {
		has := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("128Gi"), corev1.ResourcePods: resource.MustParse("110"),
		}

		if _, err := b.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Annotations: loads(metrics, i, 0)},
			Status:     corev1.NodeStatus{Capacity: has, Allocatable: has},
		}, metav1.CreateOptions{}); err != nil {
			return err
		}

		o := &topology.NodeResourceTopology{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)},
			CraneManagerPolicy: topology.ManagerPolicy{
				CPUManagerPolicy: topology.CPUManagerPolicyStatic, TopologyManagerPolicy: topology.TopologyManagerPolicySingleNUMANodePodLevel,
			},
		}

		for z := range 2 {
			o.Zones = append(o.Zones, topology.Zone{Name: fmt.Sprint("node", z), Type: topology.ZoneTypeNode, Resources: &topology.ResourceInfo{
				Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16")},
			}})
		}

		return topologies.Create(ctx, o)
	})

	go b.keepChanging(ctx, metrics)
}

// metrics are the names of the policy's annotations.
func (b *bench) metrics() []string {
	b.Helper()

	data, err := os.ReadFile(filepath.Join(b.dir, "policy.yaml"))
	if err != nil {
		b.Fatal(err)
	}

	policy, err := policyv1alpha1.DecodeDynamicSchedulerPolicy(data)
	if err != nil {
		b.Fatal(err)
	}

	var names []string
	for _, s := range policy.Spec.SyncPeriod {
		names = append(names, s.Name)
	}

	return names
}

// loads are annotations of node i in round r, between 20 and 50 %, so that no node is closed.
func loads(metrics []string, i, r int) map[string]string {
	out := map[string]string{}
	for m, name := range metrics {
		out[name] = fmt.Sprintf("%.5f,%s", 0.2+0.3*float64((i*7919+r*104729+m*31)%1000)/1000, time.Now().UTC().Format("2006-01-02T15:04:05Z"))
	}

	return out
}

// keepChanging writes every node's annotations once in the time of changing, evenly spread over it.
func (b *bench) keepChanging(ctx context.Context, metrics []string) {
	b.Helper()

	tick := time.NewTicker(changing / time.Duration(b.size.nodes))
	defer tick.Stop()

	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}

		i := n % b.size.nodes
		r := 1 + n/b.size.nodes

		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": loads(metrics, i, r)}})
		if err == nil {
			_, err = b.client.CoreV1().Nodes().Patch(ctx, nodeName(i), types.MergePatchType, patch, metav1.PatchOptions{})
		}

		if err != nil && ctx.Err() == nil {
			b.Errorf("annotations of %s: %v", nodeName(i), err)
			return
		}
	}
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// makePods makes the pods of a run: 100m of CPU as limit and half of it as request, unless edit changes it.
func (b *bench) makePods(ctx context.Context, request, limit string) {
	b.Helper()

	b.each(b.size.pods, func(i int) error {
		_, err := b.client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("run%d-%05d", b.runs, i)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request), corev1.ResourceMemory: resource.MustParse("500Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limit)},
			}}}},
		}, metav1.CreateOptions{})

		return err
	})
}

func (b *bench) removePods(ctx context.Context) {
	b.Helper()

	now := int64(0)
	if err := b.client.CoreV1().Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
}

// each runs f for 0 to n-1, several at a time, and fails with the first error.
func (b *bench) each(n int, f func(int) error) {
	b.Helper()

	var group sync.WaitGroup
	errs := make(chan error, writers)
	for w := range writers {
		group.Go(func() {
			for i := w; i < n; i += writers {
				if err := f(i); err != nil {
					errs <- err
					return
				}
			}
		})
	}

	group.Wait()
	close(errs)

	for err := range errs {
		b.Fatal(err)
	}
}
