// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reasons why a target cannot be scaled.
var (
	ErrNoScale  = errors.New("it has no scale subresource")
	ErrNoTarget = errors.New("it does not exist")
)

// Scale is the scale of a workload.
type Scale struct {
	// Replicas is the desired number in its spec, CurrentReplicas the number in its status.
	Replicas, CurrentReplicas int32
	// Selector selects its pods, as text.
	Selector string
	// Labels are those of the workload; nil for a kind that is read through its scale subresource, which has none.
	Labels map[string]string
	// Template is the spec of new pods, which must not be changed; nil for a kind whose template is unknown.
	Template *corev1.PodSpec
}

// ScaleClient reads scales: those of Deployments and StatefulSets from a cache, those of other kinds through their scale
// subresource.
type ScaleClient struct {
	// Cached has Deployments and StatefulSets, Live everything.
	Cached, Live client.Reader
	Client       client.SubResourceClientConstructor
}

// Get returns the scale of a workload. The error wraps ErrNoTarget or ErrNoScale if the user has to change something.
func (s *ScaleClient) Get(ctx context.Context, ref Ref) (Scale, error) {
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	kind := KindOf(ref.APIVersion, ref.Kind)
	switch {
	case kind.Version == "":
		return Scale{}, fmt.Errorf("%s %s: an apiVersion is needed for this kind: %w", ref.Kind, ref.Name, ErrNoTarget)
	case kind == appsv1.SchemeGroupVersion.WithKind("Deployment"):
		d := &appsv1.Deployment{}
		err := s.Cached.Get(ctx, key, d)
		return scaleFromObject(d, ref.Name, kind, d.Spec.Selector, d.Status.Replicas, err)
	case kind == appsv1.SchemeGroupVersion.WithKind("StatefulSet"):
		set := &appsv1.StatefulSet{}
		err := s.Cached.Get(ctx, key, set)
		return scaleFromObject(set, ref.Name, kind, set.Spec.Selector, set.Status.Replicas, err)
	}

	return s.readCustom(ctx, key, kind)
}

func scaleFromObject(o client.Object, name string, kind schema.GroupVersionKind, selector *metav1.LabelSelector, counted int32, err error) (Scale, error) {
	if apierrors.IsNotFound(err) {
		return Scale{}, fmt.Errorf("%s %s: %w", kind.Kind, name, ErrNoTarget)
	}

	if err != nil {
		return Scale{}, fmt.Errorf("reading the target: %w", err)
	}

	template, replicas, err := podSpec(o)
	if err != nil {
		return Scale{}, fmt.Errorf("reading the target: %w", err)
	}

	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return Scale{}, fmt.Errorf("the selector of %s %s: %w", kind.Kind, name, err)
	}

	return Scale{
		Replicas:        replicas,
		CurrentReplicas: counted,
		Selector:        s.String(),
		Labels:          o.GetLabels(),
		Template:        template,
	}, nil
}

// readCustom reads the scale subresource.
func (s *ScaleClient) readCustom(ctx context.Context, key client.ObjectKey, kind schema.GroupVersionKind) (Scale, error) {
	o := newObjectRef(key, kind)
	scale, err := readScale(ctx, s.Client, o)
	if err != nil {
		return Scale{}, s.explainMissing(ctx, o, err)
	}

	return Scale{Replicas: scale.Spec.Replicas, CurrentReplicas: scale.Status.Replicas, Selector: scale.Status.Selector}, nil
}

// newObjectRef returns an object of any kind with only its name.
func newObjectRef(key client.ObjectKey, kind schema.GroupVersionKind) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)

	return o
}

// readScale reads the scale subresource of an object of any kind; that of an unstructured object is unstructured. The error wraps ErrNoScale
// for an object without a namespace.
func readScale(ctx context.Context, c client.SubResourceClientConstructor, o client.Object) (*autoscalingv1.Scale, error) {
	scale := &autoscalingv1.Scale{}
	if _, ok := o.(*unstructured.Unstructured); !ok {
		if err := c.SubResource("scale").Get(ctx, o, scale); err != nil {
			return nil, err
		}

		return scale, checkScaleNamespace(o, scale)
	}

	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("Scale"))

	if err := c.SubResource("scale").Get(ctx, o, raw); err != nil {
		return nil, err
	}

	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, scale); err != nil {
		return nil, fmt.Errorf("the scale subresource: %w", err)
	}

	return scale, checkScaleNamespace(o, scale)
}

// checkScaleNamespace returns an error that wraps ErrNoScale for a scale outside the namespace of the object: the API server ignores the
// namespace of a request for a cluster-scoped kind.
func checkScaleNamespace(o client.Object, scale *autoscalingv1.Scale) error {
	if scale.Namespace == o.GetNamespace() {
		return nil
	}

	return fmt.Errorf("%s %s is not in namespace %s: %w", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), o.GetNamespace(), ErrNoScale)
}

// Set sets the replicas of a workload through its scale subresource, and returns the previous number.
func (s *ScaleClient) Set(ctx context.Context, ref Ref, replicas int32) (from int32, err error) {
	o := newObjectRef(client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, KindOf(ref.APIVersion, ref.Kind))
	scale, err := readScale(ctx, s.Client, o)
	if err != nil {
		return 0, fmt.Errorf("reading the scale of %s: %w", ref, err)
	}

	if from = scale.Spec.Replicas; from == replicas {
		return from, nil
	}

	scale.Spec.Replicas = replicas
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(scale)
	if err != nil {
		return from, fmt.Errorf("writing the scale of %s: %w", ref, err)
	}

	body := &unstructured.Unstructured{Object: raw}
	body.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("Scale"))

	if err := s.Client.SubResource("scale").Update(ctx, o, client.WithSubResourceBody(body)); err != nil {
		return from, fmt.Errorf("scaling %s to %d: %w", ref, replicas, err)
	}

	return from, nil
}

// explainMissing distinguishes an object that does not exist from one that cannot be scaled: both have no scale.
func (s *ScaleClient) explainMissing(ctx context.Context, o *unstructured.Unstructured, err error) error {
	name := o.GetKind() + " " + o.GetName()
	switch {
	case errors.Is(err, ErrNoScale):
		return err
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%s: the cluster knows no such kind (%s): %w", name, o.GetAPIVersion(), ErrNoTarget)
	case !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err):
		return fmt.Errorf("reading the scale of %s: %w", name, err)
	}

	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(o.GroupVersionKind())

	switch get := s.Live.Get(ctx, client.ObjectKeyFromObject(o), found); {
	case get == nil:
		return fmt.Errorf("%s: %w", name, ErrNoScale)
	case apierrors.IsNotFound(get) || meta.IsNoMatchError(get):
		return fmt.Errorf("%s: %w", name, ErrNoTarget)
	case !apierrors.IsForbidden(get): // The answer was not about the object.
		return fmt.Errorf("reading %s: %w", name, get)
	}

	return fmt.Errorf("%s: it does not exist, or it has no scale subresource: %w", name, ErrNoTarget)
}

// KindOf returns the kind of a reference; a built-in one may come without its group.
func KindOf(apiVersion, kind string) schema.GroupVersionKind {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		gv = schema.GroupVersion{Version: apiVersion}
	}

	if apiVersion == "" {
		switch kind {
		case "Deployment", "StatefulSet", "ReplicaSet", "DaemonSet":
			gv = appsv1.SchemeGroupVersion
		case "Job", "CronJob":
			gv = batchv1.SchemeGroupVersion
		case "ReplicationController":
			gv = corev1.SchemeGroupVersion
		}
	}

	return gv.WithKind(kind)
}

// IsClusterScoped reports whether a built-in kind that Crane recommends for has no namespace. Of custom kinds only the API server knows it.
func IsClusterScoped(kind schema.GroupKind) bool {
	return kind.Group == "" && slices.Contains([]string{"Node", "PersistentVolume", "Namespace"}, kind.Kind)
}

// GroupOf returns the group of a reference; a built-in kind may come without it. An apiVersion that cannot be parsed is its own group.
func GroupOf(apiVersion, kind string) string {
	if _, err := schema.ParseGroupVersion(apiVersion); err != nil {
		return apiVersion
	}

	return KindOf(apiVersion, kind).Group
}
