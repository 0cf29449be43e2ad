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

// TestScaleIsNotThere checks that an error of the API server is not mistaken for a missing target.
func TestScaleIsNotThere(t *testing.T) {
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
			t.Errorf("%s: %v", name, err)
		}
	}
}
