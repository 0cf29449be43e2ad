// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Source reads objects.
type Source struct {
	Reader client.Reader
	// PageSize is the page size of a direct client. It must be 0 for a cache, which cannot continue a list.
	PageSize int64
}

// CachedSources returns a cache for nodes, HorizontalPodAutoscalers, LimitRanges and watched workloads, and the API server for all else.
func CachedSources(cached, live client.Reader, pageSize int64) func(schema.GroupVersionKind) Source {
	return func(kind schema.GroupVersionKind) Source {
		watched := slices.ContainsFunc(WatchedKinds(), func(w WatchedKind) bool { return w.GVK == kind })
		if watched || slices.Contains([]string{"Node", "HorizontalPodAutoscaler", "LimitRange"}, kind.Kind) {
			return Source{Reader: cached}
		}

		return Source{Reader: live, PageSize: pageSize}
	}
}

// Lister lists workloads from the Kubernetes API, one kind at a time.
type Lister struct {
	// Sources returns the source of a kind: a manager's cache for kinds that are watched anyway, a direct client for others, so
	// that no informer is kept for kinds that are read once a day.
	Sources func(schema.GroupVersionKind) Source
	// Scales reads the scale subresource of kinds without a pod template.
	Scales client.SubResourceClientConstructor
	// Scheme has the built-in kinds; all others are read as unstructured objects.
	Scheme *runtime.Scheme
	// WithoutDefaults is called where the LimitRanges of a namespace, or the pods of a workload, may not be read; workloads are listed
	// without the requests that they say then. Without it, that is an error.
	WithoutDefaults func(error)
}

// Query selects the workloads to list. Empty fields select everything.
type Query struct {
	Kind      schema.GroupVersionKind
	Namespace string
	Name      string
	Selector  labels.Selector
}

// List calls visit with each workload that the query selects. An error of visit ends the list and is returned.
func (l *Lister) List(ctx context.Context, q Query, visit func(Workload) error) error {
	defaults := l.newDefaults(q.Namespace)
	return l.each(ctx, q, func(obj client.Object) error {
		w, err := l.read(ctx, obj, q.Kind, defaults)
		if err != nil {
			return err
		}

		return visit(w)
	})
}

// ListEach is like List but continues if one object cannot be read: visit gets its metadata and the error.
func (l *Lister) ListEach(ctx context.Context, q Query, visit func(Workload, error) error) error {
	defaults := l.newDefaults(q.Namespace)
	return l.each(ctx, q, func(obj client.Object) error {
		w, err := l.read(ctx, obj, q.Kind, defaults)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}

			return visit(fromMeta(obj, q.Kind), err)
		}

		return visit(w, nil)
	})
}

// ListIdentities calls visit with each object that the query selects, of kinds that run no pods: only its metadata are set.
func (l *Lister) ListIdentities(ctx context.Context, q Query, visit func(Workload) error) error {
	if q.Name != "" && q.Namespace != "" {
		return l.getOne(ctx, q, func(obj client.Object) error { return visit(fromMeta(obj, q.Kind)) })
	}

	return eachPage(ctx, l.Sources(q.Kind), newMetaList(q.Kind), q, func(obj client.Object) error { return visit(fromMeta(obj, q.Kind)) })
}

// Get returns one workload, that of a cluster-scoped kind only without a namespace. The error is the API's own (apierrors.IsNotFound and meta.IsNoMatchError work on it) or wraps ErrNoTemplate.
func (l *Lister) Get(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) (Workload, error) {
	obj, err := l.newObject(kind)
	if err != nil {
		return Workload{}, err
	}

	if err := l.Sources(kind).Reader.Get(ctx, key, obj); err != nil {
		return Workload{}, fmt.Errorf("reading %s %s: %w", kind.Kind, key, ExplainNotFound(err, kind))
	}

	if obj.GetNamespace() != key.Namespace {
		return Workload{}, fmt.Errorf("reading %s %s, which has no namespace: %w", kind.Kind, key, apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, key.Name))
	}

	return l.read(ctx, obj, kind, l.newDefaults(key.Namespace))
}

// ExplainNotFound replaces the error for a path that the API server does not serve by a NoKindMatchError, and returns any other error as it
// is. An API version that is no longer served says nothing about the object, which may exist in another version.
func ExplainNotFound(err error, kind schema.GroupVersionKind) error {
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	}

	return err
}

// read converts an object to a workload, by its template or, failing that, by its scale and one of its pods.
func (l *Lister) read(ctx context.Context, obj client.Object, kind schema.GroupVersionKind, defaults *defaults) (Workload, error) {
	ranges, err := defaults.of(ctx, obj.GetNamespace())
	if err != nil {
		return Workload{}, err
	}

	w, err := FromObject(obj, kind, ranges)
	if errors.Is(err, ErrNoTemplate) && l.Scales != nil {
		return l.fromScale(ctx, obj, kind)
	}
	if err != nil {
		return w, err
	}

	return l.withObserved(ctx, w, obj, ranges, defaults)
}

// fromScale reads kinds that keep their template elsewhere: the scale subresource has the selector of the pods, and one of them
// has the containers.
func (l *Lister) fromScale(ctx context.Context, obj client.Object, kind schema.GroupVersionKind) (Workload, error) {
	w := fromMeta(obj, kind)
	scale, err := readScale(ctx, l.Scales, obj)
	if err != nil {
		return Workload{}, fmt.Errorf("reading %s: %w and no scale subresource: %w", w.Ref, ErrNoTemplate, err)
	}

	w.Replicas = scale.Spec.Replicas
	if scale.Status.Selector == "" {
		return Workload{}, fmt.Errorf("reading %s: %w and its scale subresource has no selector", w.Ref, ErrNoTemplate)
	}

	selector, err := labels.Parse(scale.Status.Selector)
	if err != nil {
		return Workload{}, fmt.Errorf("reading %s: selector of the scale subresource: %w", w.Ref, err)
	}

	// One pod is enough, and a limit also works on a cache: it truncates.
	var pods corev1.PodList
	if err := l.Sources(podKind()).Reader.List(ctx, &pods, &client.ListOptions{
		Namespace: w.Namespace, LabelSelector: selector, Limit: 1,
	}); err != nil {
		return Workload{}, fmt.Errorf("listing the pods of %s: %w", w.Ref, err)
	}

	if len(pods.Items) > 0 {
		w = w.withPod(&pods.Items[0].Spec, &pods.Items[0].Spec)
	}

	return w, nil
}

// each lists objects page by page.
func (l *Lister) each(ctx context.Context, q Query, visit func(client.Object) error) error {
	if q.Name != "" && q.Namespace != "" {
		return l.getOne(ctx, q, visit)
	}

	newList := func() (client.ObjectList, error) { return l.newList(q.Kind) }
	return eachPage(ctx, l.Sources(q.Kind), newList, q, visit)
}

// errOtherNamespace ends a list.
var errOtherNamespace = errors.New("the kind has no namespaces")

// eachPage uses a new list for each page: decoding into a used one would overwrite objects that visit kept. It visits nothing outside the namespace
// of the query: the API server ignores the namespace of a request for a cluster-scoped kind.
func eachPage(
	ctx context.Context, from Source, newList func() (client.ObjectList, error), q Query, visit func(client.Object) error,
) error {
	opts := &client.ListOptions{Namespace: q.Namespace, LabelSelector: q.Selector, Limit: from.PageSize}
	if from.PageSize == 0 {
		// A cache returns shared objects: visitors only read, and copy what they keep.
		opts.UnsafeDisableDeepCopy = new(true)
	}

	for {
		list, err := newList()
		if err != nil {
			return err
		}

		if err := from.Reader.List(ctx, list, opts); err != nil {
			return fmt.Errorf("listing %s in %s: %w", q.Kind.Kind, namespaceName(q.Namespace), err)
		}

		err = meta.EachListItem(list, func(o runtime.Object) error {
			obj, ok := o.(client.Object)
			switch {
			case ok && q.Namespace != "" && obj.GetNamespace() != q.Namespace:
				return errOtherNamespace
			case !ok || q.Name != "" && obj.GetName() != q.Name:
				return nil
			}

			return visit(obj)
		})

		if errors.Is(err, errOtherNamespace) {
			return nil
		}

		if err != nil {
			return err
		}

		opts.Continue = list.GetContinue()
		if opts.Continue == "" || from.PageSize == 0 {
			return nil
		}
	}
}

// getOne reads a single object by its key; one that does not exist is an empty list.
func (l *Lister) getOne(ctx context.Context, q Query, visit func(client.Object) error) error {
	obj, err := l.newObject(q.Kind)
	if err != nil {
		return err
	}

	key := client.ObjectKey{Namespace: q.Namespace, Name: q.Name}
	if err := l.Sources(q.Kind).Reader.Get(ctx, key, obj); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}

		return fmt.Errorf("reading %s %s: %w", q.Kind.Kind, key, err)
	}

	if obj.GetNamespace() != q.Namespace || q.Selector != nil && !q.Selector.Matches(labels.Set(obj.GetLabels())) {
		return nil
	}

	return visit(obj)
}

func podKind() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("Pod") }

func (l *Lister) newObject(kind schema.GroupVersionKind) (client.Object, error) {
	if !l.Scheme.Recognizes(kind) {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		return u, nil
	}

	o, err := l.Scheme.New(kind)
	if err != nil {
		return nil, fmt.Errorf("kind %s: %w", kind, err)
	}

	obj, ok := o.(client.Object)
	if !ok {
		return nil, fmt.Errorf("kind %s is not an object with metadata", kind)
	}

	return obj, nil
}

func (l *Lister) newList(kind schema.GroupVersionKind) (client.ObjectList, error) {
	kind.Kind += "List"
	if !l.Scheme.Recognizes(kind) {
		u := &unstructured.UnstructuredList{}
		u.SetGroupVersionKind(kind)
		return u, nil
	}

	o, err := l.Scheme.New(kind)
	if err != nil {
		return nil, fmt.Errorf("kind %s: %w", kind, err)
	}

	list, ok := o.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("kind %s is not a list", kind)
	}

	return list, nil
}

func namespaceName(namespace string) string {
	if namespace == metav1.NamespaceAll {
		return "all namespaces"
	}

	return "namespace " + namespace
}
