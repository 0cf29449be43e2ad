// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// simulate marks pods as ready, as kubelets do, and writes an authority into Crane's webhook configurations, as craned does, until the test ends.
func (f *fixture) simulate() { f.simulateWith(nil) }

// simulateWith is simulate with the processes of pods, among them a craned that writes its authority itself; nil for none.
func (f *fixture) simulateWith(c *containers) {
	f.repeat(200*time.Millisecond, func(ctx context.Context) {
		// What fails is tried again.
		_ = f.renewLeases(ctx)
		_ = f.readyPods(ctx, c)

		if c == nil {
			_ = f.trustWebhooks(ctx)
		}
	})
}

// repeat calls a function in the background after each interval until the test ends.
func (f *fixture) repeat(interval time.Duration, do func(context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
	ended := make(chan struct{})
	f.Cleanup(func() {
		cancel()
		<-ended
	})

	go func() {
		defer close(ended)

		tick := time.NewTicker(interval)
		defer tick.Stop()

		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				do(ctx)
			}
		}
	}()
}

func (f *fixture) list(ctx context.Context, group, version, kind string, options ...client.ListOption) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind + "List"})
	return list, f.client.List(ctx, list, options...)
}

// renewLeases keeps nodes alive.
func (f *fixture) renewLeases(ctx context.Context) error {
	for i := range f.installation.size.nodes {
		lease := namespaced("coordination.k8s.io/v1", "Lease", "kube-node-lease", fmt.Sprintf("node-%d", i), map[string]any{"spec": map[string]any{
			"holderIdentity": fmt.Sprintf("node-%d", i), "leaseDurationSeconds": int64(40), "renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
		}})

		err := f.client.Create(ctx, lease)
		if apierrors.IsAlreadyExists(err) {
			now := namespaced("coordination.k8s.io/v1", "Lease", "kube-node-lease", lease.GetName(), nil)
			if err = f.client.Get(ctx, client.ObjectKeyFromObject(now), now); err == nil {
				now.Object["spec"] = lease.Object["spec"]
				err = f.client.Update(ctx, now)
			}
		}

		if err != nil {
			return err
		}
	}

	return nil
}

func (f *fixture) readyPods(ctx context.Context, c *containers) error {
	for _, namespace := range []string{"crane-system", "finops"} {
		pods, err := f.list(ctx, "", "v1", "Pod", client.InNamespace(namespace))
		if err != nil {
			return err
		}

		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.GetDeletionTimestamp() != nil {
				if c != nil {
					c.end(ctx, string(pod.GetUID()))
				}

				if err := f.client.Delete(ctx, pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
					return err
				}

				continue
			}

			// Endpoints are those of pods on nodes.
			if node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName"); node == "" && pod.GetOwnerReferences()[0].Kind == "ReplicaSet" {
				binding := namespaced("v1", "Binding", namespace, pod.GetName(), map[string]any{"target": map[string]any{"apiVersion": "v1", "kind": "Node", "name": "node-1"}})
				if err := f.client.SubResource("binding").Create(ctx, pod, binding); err != nil {
					return err
				}

				continue
			}

			if c != nil {
				if err := c.start(ctx, pod); err != nil {
					continue // not ready yet
				}
			}

			if isReady(pod) {
				continue
			}

			_ = unstructured.SetNestedMap(pod.Object, map[string]any{"phase": "Running", "podIP": "10.0.0.1", "podIPs": []any{map[string]any{"ip": "10.0.0.1"}}, "conditions": []any{
				map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)},
			}}, "status")

			if err := f.client.Status().Update(ctx, pod); err != nil {
				return err
			}
		}
	}

	return nil
}

func (f *fixture) trustWebhooks(ctx context.Context) error {
	bundle := base64.StdEncoding.EncodeToString(f.control.CAPEM())
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		all, err := f.list(ctx, "admissionregistration.k8s.io", "v1", kind)
		if err != nil {
			return err
		}

		for i := range all.Items {
			o := &all.Items[i]
			webhooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
			changed := false
			for _, w := range webhooks {
				config, _ := w.(map[string]any)["clientConfig"].(map[string]any)
				if config["caBundle"] == nil {
					config["caBundle"] = bundle
					changed = true
				}
			}

			if !changed {
				continue
			}

			_ = unstructured.SetNestedSlice(o.Object, webhooks, "webhooks")
			if err := f.client.Update(ctx, o); err != nil {
				return err
			}
		}
	}

	return nil
}
