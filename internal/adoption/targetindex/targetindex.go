// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package targetindex finds the targets of Recommendations, and the Recommendations of a target by an index of the cache. The
// controllers of Recommendations share it.
package targetindex

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
)

// Index is the field by which the cache finds the Recommendations of a target.
const Index = "spec.targetRef"

// Key identifies a target independently of its API version, since one object may be served in several.
type Key struct{ Group, Kind, Namespace, Name string }

// KeyOf returns the key of a reference.
func KeyOf(ref corev1.ObjectReference) Key {
	return Key{
		Group:     workload.GroupOf(ref.APIVersion, ref.Kind),
		Kind:      ref.Kind,
		Namespace: ref.Namespace,
		Name:      ref.Name,
	}
}

// String returns the value of the key in the index.
func (k Key) String() string { return k.Group + "/" + k.Kind + "/" + k.Namespace + "/" + k.Name }

// IndexValues returns the values of a Recommendation in the index.
func IndexValues(o client.Object) []string {
	rec, ok := o.(*analysisv1alpha1.Recommendation)
	if !ok {
		return nil
	}

	return []string{KeyOf(rec.Spec.TargetRef).String()}
}

// AddIndex adds the index to the cache. It is called once.
func AddIndex(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &analysisv1alpha1.Recommendation{}, Index, IndexValues); err != nil {
		return fmt.Errorf("indexing recommendations by target: %w", err)
	}

	return nil
}

// CheckNamespace returns an error unless the target of a Recommendation is in the namespace of the Recommendation. A target without a
// namespace is cluster-scoped and needs a Recommendation in systemNamespace. Without this check the right to write Recommendations in one
// namespace would be the right to change workloads in all. Find checks kinds that only the API server knows to be cluster-scoped.
func CheckNamespace(rec *analysisv1alpha1.Recommendation, systemNamespace string) *field.Error {
	ref := rec.Spec.TargetRef
	path := field.NewPath("spec", "targetRef", "namespace")

	namespace := ref.Namespace
	if namespace != "" && workload.IsClusterScoped(schema.GroupKind{Group: workload.GroupOf(ref.APIVersion, ref.Kind), Kind: ref.Kind}) {
		return field.Invalid(path, namespace, fmt.Sprintf("must be empty: a %s has no namespace, and needs a Recommendation in Crane's own", ref.Kind))
	}
	if namespace == rec.Namespace || namespace == "" && rec.Namespace == systemNamespace {
		return nil
	}

	return field.Invalid(path, namespace, fmt.Sprintf(
		"must be the namespace of the Recommendation, %s; cluster-scoped targets need a Recommendation in Crane's own namespace", rec.Namespace))
}

// IsPermitted reports whether CheckNamespace returns no error.
func IsPermitted(rec *analysisv1alpha1.Recommendation, systemNamespace string) bool {
	return CheckNamespace(rec, systemNamespace) == nil
}

// ListRecommendations returns the Recommendations of a target in any order.
func ListRecommendations(ctx context.Context, reader client.Reader, key Key) ([]analysisv1alpha1.Recommendation, error) {
	var list analysisv1alpha1.RecommendationList
	if err := reader.List(ctx, &list, client.MatchingFields{Index: key.String()}); err != nil {
		return nil, fmt.Errorf("listing the recommendations of %s %s/%s: %w", key.Kind, key.Namespace, key.Name, err)
	}

	return list.Items, nil
}

// ErrOtherNamespace means that a target is not in the namespace of its reference, because its kind is cluster-scoped.
var ErrOtherNamespace = errors.New("the target is not in the namespace of its reference")

// Find reads a target: the whole object from the cache for watched kinds, otherwise its metadata from the API server. For an API version
// that is not served, meta.IsNoMatchError is true of the error. The API server ignores the namespace of a request for a cluster-scoped kind:
// the error then wraps ErrOtherNamespace.
func Find(ctx context.Context, cached, live client.Reader, ref corev1.ObjectReference) (client.Object, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("apiVersion of the target: %w", err)
	}

	gvk := gv.WithKind(ref.Kind)
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	for _, kind := range workload.WatchedKinds() {
		if kind.GVK != gvk {
			continue
		}

		obj := kind.Object
		if err := cached.Get(ctx, key, obj); err == nil {
			return obj, nil
		} else if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading target %s %s: %w", ref.Kind, key, err)
		}

		break // The cache may lag: the API server decides whether the target exists.
	}

	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(gvk)

	if err := live.Get(ctx, key, obj); err != nil {
		return nil, fmt.Errorf("reading target %s %s: %w", ref.Kind, key, workload.ExplainNotFound(err, gvk))
	}

	if obj.Namespace != ref.Namespace {
		return nil, fmt.Errorf("reading target %s %s: %w", ref.Kind, key, ErrOtherNamespace)
	}

	return obj, nil
}
