// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

// operation is a part of a step. Both directions are idempotent: they compare the cluster with what it should be, so that an operation
// that was interrupted at any point is repeated.
type operation interface {
	String() string
	do(ctx context.Context, e *env) error
	undo(ctx context.Context, e *env) error
}

// putObject creates an object of Crane, or replaces one of gocrane. Undoing restores what was there.
type putObject struct{ desired *Object }

func (p putObject) String() string                         { return "write " + RefOf(p.desired).String() }
func (p putObject) undo(ctx context.Context, e *env) error { return e.restore(ctx, RefOf(p.desired)) }

func (p putObject) do(ctx context.Context, e *env) error {
	if err := e.put(ctx, p.desired); err != nil {
		return err
	}

	if p.desired.GetKind() == "CustomResourceDefinition" {
		return e.awaitEstablished(ctx, RefOf(p.desired))
	}

	return nil
}

// awaitEstablished waits until the API server serves a CRD.
func (e *env) awaitEstablished(ctx context.Context, ref Ref) error {
	return e.wait(ctx, ref.String()+" is established", func(ctx context.Context) (bool, error) {
		o, err := e.get(ctx, ref)
		return o != nil && slices.ContainsFunc(mapsAt(o, "status", "conditions"), func(c map[string]any) bool {
			return c["type"] == "Established" && c["status"] == "True"
		}), err
	})
}

// removeObject deletes an object of gocrane. Undoing creates it.
type removeObject struct{ ref Ref }

func (r removeObject) String() string                         { return "delete " + r.ref.String() }
func (r removeObject) undo(ctx context.Context, e *env) error { return e.restore(ctx, r.ref) }
func (r removeObject) do(ctx context.Context, e *env) error {
	return e.remove(ctx, r.ref, propagateDefault)
}

// stopWorkload stops a Deployment or DaemonSet of gocrane without deleting it. Undoing lets it run as before.
type stopWorkload struct{ ref Ref }

func (s stopWorkload) String() string { return "stop " + s.ref.String() }

// stopSelector selects no node.
const stopSelector = "migrate.crane.io/stopped"

// stopped returns a copy of a workload that runs no pod.
func stopped(o *Object) *Object {
	out := o.DeepCopy()
	if o.GetKind() == "DaemonSet" {
		_ = unstructured.SetNestedField(out.Object, "true", "spec", "template", "spec", "nodeSelector", stopSelector)
	} else {
		_ = unstructured.SetNestedField(out.Object, int64(0), "spec", "replicas")
	}

	return out
}

func (s stopWorkload) do(ctx context.Context, e *env) error {
	return e.setWorkload(ctx, s.ref, stopped(e.originals[s.ref]), func(o *Object) bool { return podsOf(o) == 0 })
}

func (s stopWorkload) undo(ctx context.Context, e *env) error {
	original := e.originals[s.ref]
	return e.setWorkload(ctx, s.ref, original, func(o *Object) bool { return readyOf(original) == 0 || ready(o) })
}

// setWorkload writes a workload of gocrane, if it still is there with gocrane's selector, and waits for its pods.
func (e *env) setWorkload(ctx context.Context, ref Ref, to *Object, done func(*Object) bool) error {
	now, err := e.get(ctx, ref)
	if err != nil || now == nil || !sameSelector(now, to) {
		return err
	}

	if err := e.replace(ctx, to, func(now *Object) bool { return sameWorkload(now, to) }); err != nil {
		return err
	}

	return e.wait(ctx, ref.String()+" is as it should be", func(ctx context.Context) (bool, error) {
		o, err := e.get(ctx, ref)
		return o == nil || observed(o) && done(o), err
	})
}

// sameWorkload compares the specs of workloads. Annotations are also written by controllers.
func sameWorkload(a, b *Object) bool {
	return covers(a.Object["spec"], b.Object["spec"]) && covers(b.Object["spec"], a.Object["spec"])
}

func int64At(o *Object, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(o.Object, path...)
	return n
}

// observed reports whether the controller has seen the newest spec.
func observed(o *Object) bool {
	return int64At(o, "status", "observedGeneration") >= o.GetGeneration()
}

func podsOf(o *Object) int64 {
	if o.GetKind() == "DaemonSet" {
		return int64At(o, "status", "currentNumberScheduled") + int64At(o, "status", "numberMisscheduled")
	}

	return int64At(o, "status", "replicas")
}

func readyOf(o *Object) int64 {
	if o.GetKind() == "DaemonSet" {
		return int64At(o, "status", "numberReady")
	}

	return int64At(o, "status", "readyReplicas")
}

// ready reports whether all pods of a workload are ready and of the newest template. Of a DaemonSet nine of ten suffice, because nodes may be down.
func ready(o *Object) bool {
	if o.GetKind() == "DaemonSet" {
		return 10*readyOf(o) >= 9*int64At(o, "status", "desiredNumberScheduled")
	}

	return readyOf(o) >= int64At(o, "spec", "replicas") && int64At(o, "status", "updatedReplicas") >= int64At(o, "spec", "replicas")
}

// setField sets a field of an object of a user, and undoing sets the value that it had.
type setField struct {
	ref   Ref
	path  []string
	value any
}

func (s setField) String() string { return fmt.Sprintf("set %v of %s to %v", s.path, s.ref, s.value) }

func (s setField) do(ctx context.Context, e *env) error { return s.set(ctx, e, s.value) }

func (s setField) undo(ctx context.Context, e *env) error {
	old, _, _ := unstructured.NestedFieldCopy(e.originals[s.ref].Object, s.path...)
	return s.set(ctx, e, old)
}

func (s setField) set(ctx context.Context, e *env, value any) error {
	return e.edit(ctx, s.ref, func(o *Object) (main, status bool) {
		now, _, _ := unstructured.NestedFieldNoCopy(o.Object, s.path...)
		if now == value {
			return false, false
		}

		return unstructured.SetNestedField(o.Object, value, s.path...) == nil, false
	})
}

// edit changes an object, unless it is gone, and writes the parts that changed.
func (e *env) edit(ctx context.Context, ref Ref, change func(*Object) (main, status bool)) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		o, err := e.get(ctx, ref)
		if err != nil || o == nil {
			return err
		}

		main, status := change(o)
		changed := o.DeepCopy()

		// The status is a subresource: its changes survive the first update only in the copy.
		if main {
			if err := e.client.Update(ctx, o, client.FieldOwner(fieldOwner)); err != nil {
				return err
			}
		}

		if !status {
			return nil
		}

		changed.SetResourceVersion(o.GetResourceVersion())
		return e.client.Status().Update(ctx, changed, client.FieldOwner(fieldOwner))
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", ref, err)
	}

	return nil
}

// cleanNode withdraws what gocrane wrote to a Node.
type cleanNode struct {
	ref   Ref
	marks NodeMarks
	// forAgent records on the Node that gocrane's agent ran there, for Crane's agent, which restores what it left on the host.
	forAgent bool
}

func (c cleanNode) String() string { return "withdraw from " + c.ref.String() + ": " + c.marks.text() }

func (c cleanNode) do(ctx context.Context, e *env) error {
	return e.edit(ctx, c.ref, func(node *Object) (main, status bool) {
		main, status = c.marks.strip(node)
		if c.forAgent && (main || status) && !isPredecessorNoted(node) {
			main = unstructured.SetNestedField(node.Object, ensurancev1alpha1.PredecessorGocrane, predecessorPath()...) == nil || main
		}

		return main, status
	})
}

func (c cleanNode) undo(ctx context.Context, e *env) error {
	return e.edit(ctx, c.ref, func(node *Object) (main, status bool) {
		main, status = c.marks.restore(node)
		// Crane's agent may have set the record as well.
		if isPredecessorNoted(node) && !isPredecessorNoted(e.originals[c.ref]) {
			annotations := node.GetAnnotations()
			delete(annotations, ensurancev1alpha1.AnnotationPredecessor)
			setAnnotations(node, annotations)
			main = true
		}

		return main, status
	})
}

func predecessorPath() []string {
	return []string{"metadata", "annotations", ensurancev1alpha1.AnnotationPredecessor}
}

// isPredecessorNoted reports whether a Node has the record that CPU quotas of gocrane's agent may be left on its host.
func isPredecessorNoted(node *Object) bool {
	_, ok := node.GetAnnotations()[ensurancev1alpha1.AnnotationPredecessor]
	return ok
}

// NodesWithQuotas returns the names of the Nodes on whose hosts CPU quotas of gocrane's agent may be left, sorted.
func NodesWithQuotas(ctx context.Context, c client.Reader) ([]string, error) {
	r := &reader{Reader: c, unreadable: map[string]string{}}
	nodes, err := r.list(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Node"})

	if reason := r.unreadable["Node"]; reason != "" {
		return nil, errors.New(reason)
	}

	var out []string
	for _, node := range nodes {
		if isPredecessorNoted(node) {
			out = append(out, node.GetName())
		}
	}

	slices.Sort(out)
	return out, err
}

// returnObjects changes nothing. Undoing restores objects that gocrane's controllers made, where Crane's have changed them.
type returnObjects struct{ refs []Ref }

func (r returnObjects) String() string {
	return fmt.Sprintf("leave %d objects of gocrane's controllers to Crane's", len(r.refs))
}

func (r returnObjects) do(context.Context, *env) error { return nil }

func (r returnObjects) undo(ctx context.Context, e *env) error {
	for _, ref := range r.refs {
		now, err := e.get(ctx, ref)
		if err != nil {
			return err
		}

		if now == nil {
			continue // deleted with its owner by a user
		}

		if err := e.restore(ctx, ref); err != nil && !meta.IsNoMatchError(err) {
			return err
		}
	}

	return nil
}

// awaitTrust waits until craned has written its authority into the webhook configurations.
type awaitTrust struct{ ref Ref }

func (a awaitTrust) String() string                   { return "wait until craned serves " + a.ref.String() }
func (a awaitTrust) undo(context.Context, *env) error { return nil }

func (a awaitTrust) do(ctx context.Context, e *env) error {
	return e.wait(ctx, "craned has written its authority into "+a.ref.String(), func(ctx context.Context) (bool, error) {
		o, err := e.get(ctx, a.ref)
		return o != nil && !slices.ContainsFunc(mapsAt(o, "webhooks"), func(w map[string]any) bool {
			bundle, _, _ := unstructured.NestedString(w, "clientConfig", "caBundle")
			return bundle == ""
		}), err
	})
}
