// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestScaleClientGet_Errors checks that an error of the API server is not mistaken for a missing target.
func TestScaleClientGet_Errors(t *testing.T) {
	rollouts := schema.GroupResource{Group: rolloutKind.Group, Resource: "rollouts"}
	notFound := apierrors.NewNotFound(rollouts, "x")
	for name, test := range map[string]struct {
		scale, object error
		want          error // nil for an error that a retry may resolve
	}{
		"no scale":       {notFound, nil, ErrNoScale},
		"no object":      {notFound, notFound, ErrNoTarget},
		"no kind":        {&meta.NoKindMatchError{GroupKind: rolloutKind.GroupKind()}, nil, ErrNoTarget},
		"the kind goes":  {notFound, &meta.NoKindMatchError{GroupKind: rolloutKind.GroupKind()}, ErrNoTarget},
		"no right":       {notFound, apierrors.NewForbidden(rollouts, "x", errors.New("no")), ErrNoTarget},
		"busy":           {apierrors.NewTooManyRequests("busy", 1), nil, nil},
		"busy just then": {notFound, apierrors.NewTooManyRequests("busy", 1), nil},
		"fails":          {notFound, apierrors.NewInternalError(errors.New("etcd")), nil},
		"timeout":        {notFound, context.DeadlineExceeded, nil},
	} {
		c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithInterceptorFuncs(interceptor.Funcs{
			SubResourceGet: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceGetOption) error {
				return test.scale
			},
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return test.object
			},
		}).Build()

		apiVersion, kind := rolloutKind.ToAPIVersionAndKind()
		_, err := (&ScaleClient{Cached: c, Live: c, Client: c}).Get(t.Context(), Ref{Namespace: "n", APIVersion: apiVersion, Kind: kind, Name: "x"})
		if gone := errors.Is(err, ErrNoTarget) || errors.Is(err, ErrNoScale); err == nil || gone != (test.want != nil) || gone && !errors.Is(err, test.want) {
			t.Errorf("%s: Get = %v, want %v", name, err, test.want)
		}
	}
}

// TestScaleClientGet_ClusterScoped checks that an object without a namespace is neither read nor scaled through a reference of a namespace: the API
// server ignores the namespace of a request for such a kind.
func TestScaleClientGet_ClusterScoped(t *testing.T) {
	updates := 0
	c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceGet: func(_ context.Context, _ client.Client, _ string, _, scale client.Object, _ ...client.SubResourceGetOption) error {
			scale.SetName("x")
			return nil
		},
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			updates++
			return nil
		},
	}).Build()

	apiVersion, kind := rolloutKind.ToAPIVersionAndKind()
	targets := &ScaleClient{Cached: c, Live: c, Client: c}
	ref := Ref{Namespace: "n", APIVersion: apiVersion, Kind: kind, Name: "x"}
	if _, err := targets.Get(t.Context(), ref); !errors.Is(err, ErrNoScale) {
		t.Errorf("reading: %v, want %v", err, ErrNoScale)
	}
	if _, err := targets.Set(t.Context(), ref, 3); !errors.Is(err, ErrNoScale) || updates > 0 {
		t.Errorf("scaling: %d updates, %v, want %v", updates, err, ErrNoScale)
	}
}
