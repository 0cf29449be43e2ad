// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// swapWorkload replaces a workload of gocrane by that of Crane under the same name. Selectors cannot be changed, so the old one is deleted.
type swapWorkload struct {
	desired *Object
	// services select the pods of the workload; they change when the new pods are ready.
	services []*Object
	// external is the external metrics API, which the workload serves: the old pods answer until the new ones are ready. Empty for
	// workloads that answer no requests.
	external Ref
	// stopped reports whether gocrane's workload has been stopped by an earlier step.
	stopped bool
}

func (s swapWorkload) String() string { return "replace " + RefOf(s.desired).String() }

func (s swapWorkload) do(ctx context.Context, e *env) error {
	return s.swap(ctx, e, e.originals[RefOf(s.desired)], s.desired, func(o *Object) error { return e.put(ctx, o) }, nil)
}

func (s swapWorkload) undo(ctx context.Context, e *env) error {
	original := e.originals[RefOf(s.desired)]
	restore := func(o *Object) error { return e.restore(ctx, RefOf(o)) }
	if original == nil {
		for _, service := range s.services {
			if err := restore(service); err != nil {
				return err
			}
		}

		return e.remove(ctx, RefOf(s.desired), propagateDefault)
	}

	if s.stopped {
		original = stopped(original)
	}

	return s.swap(ctx, e, s.desired, original, restore, e.originals[s.external])
}

// swap brings the workload from one form to the other. final is the external metrics API in the end; nil keeps that of the cluster.
func (s swapWorkload) swap(ctx context.Context, e *env, from, to *Object, write func(*Object) error, final *Object) error {
	ref := RefOf(to)
	now, err := e.get(ctx, ref)
	if err != nil {
		return err
	}

	answering := s.external.Name != "" && from != nil
	swapped := now != nil && sameSelector(now, to) && now.GetDeletionTimestamp() == nil
	if answering && (!swapped || !ready(now)) {
		if err := s.bridge(ctx, e, from); err != nil {
			return err
		}
	}

	if !swapped {
		how := propagateDefault
		if answering {
			how = propagateOrphan // the ReplicaSets and their pods go on
		}

		if err := e.remove(ctx, ref, how); err != nil {
			return err
		}

		if err := e.create(ctx, to); err != nil {
			return err
		}
	}

	if err := e.awaitReady(ctx, to); err != nil {
		return err
	}

	for _, service := range s.services {
		if err := write(service); err != nil {
			return err
		}
	}

	if !answering {
		return nil
	}

	if final != nil {
		return s.handBack(ctx, e, from, to, final)
	}

	if err := s.unbridge(ctx, e, ref.Namespace, final); err != nil {
		return err
	}

	return e.removeOrphans(ctx, ref.Namespace, from)
}

// handBack returns the external metrics API to gocrane's pods. Crane's pods write their authority into the APIService while it names their Service, and
// the API server would then reject the certificate of gocrane's pods. So Crane's pods end first, while gocrane's answer over the bridge.
func (s swapWorkload) handBack(ctx context.Context, e *env, from, to, final *Object) error {
	namespace := to.GetNamespace()
	api, err := e.get(ctx, s.external)
	if err != nil {
		return err
	}

	if api != nil && stringAt(api, "spec", "service", "name") == bridgeName {
		if err := e.put(ctx, bridgeService(to)); err != nil {
			return err
		}

		if err := e.wait(ctx, "Service "+bridgeName+" has endpoints", func(ctx context.Context) (bool, error) { return e.hasEndpoints(ctx, to) }); err != nil {
			return err
		}
	}

	if err := e.removeOrphans(ctx, namespace, from); err != nil {
		return err
	}

	err = e.wait(ctx, "pods of "+RefOf(from).String()+" have ended", func(ctx context.Context) (bool, error) {
		pods, err := e.podsOf(ctx, from)
		return len(pods) == 0, err
	})
	if err != nil {
		return err
	}

	return s.unbridge(ctx, e, namespace, final)
}

// awaitReady waits until a workload is ready. One of gocrane that did not work before is not waited for.
func (e *env) awaitReady(ctx context.Context, workload *Object) error {
	ref := RefOf(workload)
	if original := e.originals[ref]; original != nil && sameSelector(workload, original) && readyOf(original) == 0 {
		return nil
	}

	return e.wait(ctx, ref.String()+" is ready", func(ctx context.Context) (bool, error) {
		o, err := e.get(ctx, ref)
		return o != nil && observed(o) && ready(o), err
	})
}

// bridgeName is the Service of the pods that answer while their workload is replaced.
const bridgeName = "metric-adapter-migration"

// bridgeService returns the Service of the pods of a workload.
func bridgeService(workload *Object) *Object {
	pods := map[string]any{}
	for key, value := range stringMapAt(workload, "spec", "selector", "matchLabels") {
		pods[key] = value
	}

	service := serviceRef(workload.GetNamespace(), bridgeName).empty()
	service.SetNamespace(workload.GetNamespace())
	service.SetName(bridgeName)
	service.SetLabels(map[string]string{labelMigration: "bridge"})
	service.Object["spec"] = map[string]any{
		"selector": pods, "ports": []any{map[string]any{"name": "https", "port": int64(443), "protocol": "TCP", "targetPort": int64(6443)}},
	}

	return service
}

// podsOf returns the pods that the selector of a workload selects.
func (e *env) podsOf(ctx context.Context, workload *Object) ([]Object, error) {
	pods := &unstructured.UnstructuredList{}
	pods.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "PodList"})
	err := e.client.List(ctx, pods, client.InNamespace(workload.GetNamespace()), client.MatchingLabels(stringMapAt(workload, "spec", "selector", "matchLabels")))

	return pods.Items, err
}

// bridge lets the external metrics API be answered by pods of a workload over a Service of its own. Crane's metric-adapter leaves an APIService
// of another Service alone, so that it does not write its authority before it answers.
func (s swapWorkload) bridge(ctx context.Context, e *env, from *Object) error {
	if err := e.put(ctx, bridgeService(from)); err != nil {
		return err
	}

	if err := e.wait(ctx, "Service "+bridgeName+" has endpoints", func(ctx context.Context) (bool, error) { return e.hasEndpoints(ctx, from) }); err != nil {
		return err
	}

	return e.edit(ctx, s.external, func(o *Object) (main, status bool) { return pointTo(o, from.GetNamespace(), bridgeName), false })
}

// hasEndpoints reports whether the endpoints of the bridge are pods of a workload and one of them is ready. A workload without ready pods needs
// no bridge.
func (e *env) hasEndpoints(ctx context.Context, workload *Object) (bool, error) {
	pods, err := e.podsOf(ctx, workload)
	if err != nil {
		return false, err
	}

	needed := false
	uids := map[string]bool{}
	for i := range pods {
		uids[string(pods[i].GetUID())] = true
		needed = needed || slices.ContainsFunc(mapsAt(&pods[i], "status", "conditions"), func(c map[string]any) bool { return c["type"] == "Ready" && c["status"] == "True" })
	}

	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSliceList"})

	if err := e.client.List(ctx, list, client.InNamespace(workload.GetNamespace()), client.MatchingLabels{"kubernetes.io/service-name": bridgeName}); err != nil {
		return false, err
	}

	found := false
	for i := range list.Items {
		for _, endpoint := range mapsAt(&list.Items[i], "endpoints") {
			uid, _, _ := unstructured.NestedString(endpoint, "targetRef", "uid")
			if !uids[uid] {
				return false, nil // of the selector before
			}

			ready, set, _ := unstructured.NestedBool(endpoint, "conditions", "ready")
			found = found || ready || !set
		}
	}

	return found || !needed, nil
}

// pointTo lets an APIService be answered by another Service, whose certificate is not verified, as with gocrane.
func pointTo(o *Object, namespace, service string) bool {
	if apiOwner(o) == namespace+"/"+service {
		return false
	}

	_ = unstructured.SetNestedField(o.Object, namespace, "spec", "service", "namespace")
	_ = unstructured.SetNestedField(o.Object, service, "spec", "service", "name")
	_ = unstructured.SetNestedField(o.Object, true, "spec", "insecureSkipTLSVerify")
	unstructured.RemoveNestedField(o.Object, "spec", "caBundle")

	return true
}

// unbridge lets the external metrics API be answered by the Service of the workload again, and removes the bridge.
func (s swapWorkload) unbridge(ctx context.Context, e *env, namespace string, final *Object) error {
	err := e.edit(ctx, s.external, func(o *Object) (main, status bool) {
		if stringAt(o, "spec", "service", "name") == bridgeName {
			return pointTo(o, namespace, componentAdapter), false
		}

		return false, false
	})

	if err == nil && final != nil {
		err = e.restore(ctx, s.external)
	}

	if err != nil {
		return err
	}

	return e.remove(ctx, serviceRef(namespace, bridgeName), propagateDefault)
}

// moveAPI lets an aggregated API that gocrane's metric-adapter answers from another namespace be answered by Crane's. Both run until the leftovers are
// removed, and again before the API is moved back.
type moveAPI struct {
	ref Ref
	// from is the namespace of gocrane's metric-adapter.
	from string
}

func (m moveAPI) String() string {
	return "let " + m.ref.String() + " be answered from " + craneNamespace + " instead of " + m.from
}

// do leaves the certificate unverified, as with gocrane, until Crane's metric-adapter has written its authority.
func (m moveAPI) do(ctx context.Context, e *env) error {
	return e.edit(ctx, m.ref, func(o *Object) (main, status bool) { return pointTo(o, craneNamespace, componentAdapter), false })
}

func (m moveAPI) undo(ctx context.Context, e *env) error {
	if original := e.originals[namespacedRef("apps/v1", "Deployment", m.from, componentAdapter)]; original != nil {
		if err := e.awaitReady(ctx, original); err != nil {
			return err
		}
	}

	return e.restore(ctx, m.ref)
}

// removeOrphans deletes the ReplicaSets that the deletion of a Deployment has left.
func (e *env) removeOrphans(ctx context.Context, namespace string, deployment *Object) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSetList"})

	if err := e.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels(stringMapAt(deployment, "spec", "selector", "matchLabels"))); err != nil {
		return err
	}

	for i := range list.Items {
		if len(list.Items[i].GetOwnerReferences()) > 0 {
			continue
		}

		if err := e.remove(ctx, RefOf(&list.Items[i]), propagateDefault); err != nil {
			return err
		}
	}

	return nil
}
