// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
)

// AnnotationMinReplicas has, on an HPA whose minimum is the replicas at which Crane left it, the minimum of its EffectiveHorizontalPodAutoscaler.
const AnnotationMinReplicas = "migrate.crane.io/min-replicas"

const ehpaKindName = "EffectiveHorizontalPodAutoscaler"

// releaseHPA makes a plain HPA of one that an EffectiveHorizontalPodAutoscaler controls. One that scales a Substitute is deleted: it scales
// no workload.
type releaseHPA struct{ ref Ref }

func (r releaseHPA) String() string { return "release " + r.ref.String() }

func (r releaseHPA) do(ctx context.Context, e *env) error {
	now, err := e.get(ctx, r.ref)
	if err != nil || now == nil || now.GetLabels()[labelManagedBy] != ehpaManager {
		return err
	}
	if stringAt(now, "spec", "scaleTargetRef", "kind") == "Substitute" {
		return e.remove(ctx, r.ref, propagateDefault)
	}

	minReplicas, err := e.minimumOf(ctx, now)
	if err != nil {
		return err
	}

	return e.edit(ctx, r.ref, func(o *Object) (main, status bool) { return release(o, minReplicas), false })
}

func (r releaseHPA) undo(ctx context.Context, e *env) error { return e.restore(ctx, r.ref) }

// minimumOf returns the minimum of the EffectiveHorizontalPodAutoscaler that controls an HPA, that of the HPA if it is gone.
func (e *env) minimumOf(ctx context.Context, hpa *Object) (int64, error) {
	for _, owner := range hpa.GetOwnerReferences() {
		if owner.Kind != ehpaKindName {
			continue
		}

		ehpa, err := e.get(ctx, namespacedRef(owner.APIVersion, owner.Kind, hpa.GetNamespace(), owner.Name))
		if err != nil {
			return 0, err
		}

		if ehpa == nil {
			break
		}

		if n, ok, _ := unstructured.NestedInt64(ehpa.Object, "spec", "minReplicas"); ok {
			return n, nil
		}

		return 1, nil
	}

	return int64At(hpa, "spec", "minReplicas"), nil
}

// release removes from an HPA what makes it Crane's. Where a forecast or a schedule may hold replicas, its minimum becomes the replicas that it has.
func release(o *Object, minReplicas int64) bool {
	if o.GetLabels()[labelManagedBy] != ehpaManager {
		return false
	}

	metrics, _, _ := unstructured.NestedSlice(o.Object, "spec", "metrics")
	plain := slices.DeleteFunc(slices.Clone(metrics), func(m any) bool { metric, _ := m.(map[string]any); return ownMetric(metric) })
	if len(plain) > 0 {
		_ = unstructured.SetNestedSlice(o.Object, plain, "spec", "metrics")
	} else {
		unstructured.RemoveNestedField(o.Object, "spec", "metrics") // the API server sets its default
	}

	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}

	delete(annotations, autoscalingv1alpha1.AnnotationAdoptedSpec)
	floor := minReplicas
	if len(plain) != len(metrics) || int64At(o, "spec", "minReplicas") > minReplicas {
		floor = min(max(minReplicas, int64At(o, "status", "currentReplicas"), int64At(o, "status", "desiredReplicas")), int64At(o, "spec", "maxReplicas"))
	}
	if floor != minReplicas {
		annotations[AnnotationMinReplicas] = strconv.FormatInt(minReplicas, 10)
	}

	_ = unstructured.SetNestedField(o.Object, floor, "spec", "minReplicas")
	labels := o.GetLabels()
	maps.DeleteFunc(labels, func(key, _ string) bool {
		return slices.Contains([]string{labelManagedBy, labelPartOf, autoscalingv1alpha1.LabelName, autoscalingv1alpha1.LabelEffectiveHPAUID}, key)
	})
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	o.SetOwnerReferences(slices.DeleteFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.Kind == ehpaKindName }))

	return true
}

// writeRequests writes the requests of the running pods of a workload into its template.
type writeRequests struct{ TemplateRequests }

func (w writeRequests) String() string { return "write requests of pods into " + w.Workload.String() }

func (w writeRequests) do(ctx context.Context, e *env) error {
	return e.edit(ctx, w.Workload, func(o *Object) (main, status bool) {
		editContainers(o, func(c map[string]any) {
			name, _ := c["name"].(string)
			for kind, quantity := range w.Requests[name] {
				if now, _, _ := unstructured.NestedString(c, "resources", "requests", kind); now != quantity {
					main = unstructured.SetNestedField(c, quantity, "resources", "requests", kind) == nil || main
				}
			}
		})

		return main, false
	})
}

// undo changes nothing: the pods have been replaced, and the template says what they have.
func (w writeRequests) undo(context.Context, *env) error { return nil }

// dropObject deletes an object of Crane's kinds, whose controller has stopped, without what it owns. Undoing creates it with its status.
type dropObject struct{ ref Ref }

func (d dropObject) String() string { return "delete " + d.ref.String() }

func (d dropObject) do(ctx context.Context, e *env) error {
	err := e.edit(ctx, d.ref, func(o *Object) (main, status bool) {
		main = len(o.GetFinalizers()) > 0
		o.SetFinalizers(nil)
		return main, false
	})
	if err != nil {
		return err
	}

	return e.remove(ctx, d.ref, propagateOrphan)
}

func (d dropObject) undo(ctx context.Context, e *env) error {
	original := e.originals[d.ref]
	err := e.wait(ctx, d.ref.String()+" is created", func(ctx context.Context) (bool, error) {
		now, err := e.get(ctx, d.ref)
		if err == nil && now == nil {
			err = e.restore(ctx, d.ref)
		}

		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return false, nil // the kind is served a moment after its definition
		}

		return err == nil, err
	})

	status, ok := original.Object["status"]
	if err != nil || !ok {
		return err
	}

	return e.edit(ctx, d.ref, func(o *Object) (bool, bool) {
		if covers(o.Object["status"], status) {
			return false, false
		}

		o.Object["status"] = status
		return false, true
	})
}

// dropDefinition deletes a CustomResourceDefinition. Undoing waits until its kind is served.
type dropDefinition struct{ removeObject }

func (d dropDefinition) undo(ctx context.Context, e *env) error {
	if err := d.removeObject.undo(ctx, e); err != nil {
		return err
	}

	return e.awaitEstablished(ctx, d.ref)
}

// removeStopped deletes a workload that has been stopped. Undoing creates it stopped: the step that stopped it lets it run.
type removeStopped struct{ removeObject }

func (r removeStopped) undo(ctx context.Context, e *env) error {
	to := stopped(e.originals[r.ref])
	return e.replace(ctx, to, func(now *Object) bool { return sameWorkload(now, to) })
}

// withOwners returns a copy of an object whose owners are those of the cluster: owners that an undo created have another uid.
func (e *env) withOwners(ctx context.Context, o *Object) (*Object, error) {
	out := o.DeepCopy()
	var owners []any
	for _, reference := range mapsAt(o, "metadata", "ownerReferences") {
		text := func(key string) string { s, _ := reference[key].(string); return s }
		ref := Ref{APIVersion: text("apiVersion"), Kind: text("kind"), Name: text("name")}
		if !slices.Contains(gocraneGroups(), ref.group()) {
			owners = append(owners, reference)
			continue
		}

		if namespacedKind(ref) {
			ref.Namespace = o.GetNamespace()
		}

		owner, err := e.get(ctx, ref)
		if err != nil {
			return nil, err
		}

		if owner == nil {
			continue // the garbage collector would delete the object
		}

		labels := out.GetLabels()
		for key, value := range labels {
			if value == text("uid") {
				labels[key] = string(owner.GetUID())
			}
		}

		out.SetLabels(labels)
		reference["uid"] = string(owner.GetUID())
		owners = append(owners, reference)
	}

	if len(owners) > 0 {
		if err := unstructured.SetNestedSlice(out.Object, owners, "metadata", "ownerReferences"); err != nil {
			return nil, fmt.Errorf("owners of %s: %w", RefOf(o), err)
		}
	} else {
		unstructured.RemoveNestedField(out.Object, "metadata", "ownerReferences")
	}

	return out, nil
}
