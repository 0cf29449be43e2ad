// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package optional

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	kind    = schema.GroupVersionKind{Group: "keda.sh", Version: "v1alpha1", Kind: "ScaledObject"}
	errDown = errors.New("down")
)

// server is an API server that answers lists with an error, or with one object, and counts them.
type server struct {
	client.Reader
	err   error
	lists int
}

func (s *server) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.lists++
	if into, ok := list.(*unstructured.UnstructuredList); ok && s.err == nil {
		into.Items = []unstructured.Unstructured{{}}
	}
	return s.err
}

// TestDefinitionRemoved: a kind whose definition is removed while the mapper still knows it is none, and no error: else nothing
// that asks for it would go on. It is looked for again after a while.
func TestDefinitionRemoved(t *testing.T) {
	for name, gone := range map[string]error{
		"not found": apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: "scaledobjects"}, ""),
		"no match":  &meta.NoKindMatchError{GroupKind: kind.GroupKind()},
	} {
		t.Run(name, func(t *testing.T) {
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
			mapper.Add(kind, meta.RESTScopeNamespace)
			api := &server{}
			k := New(kind.GroupKind(), api, mapper)
			now := time.Unix(0, 0)
			list := func(what string, want, asked int) {
				t.Helper()
				found, err := k.List(t.Context(), "shop", now)
				if err != nil || len(found) != want || api.lists != asked {
					t.Fatalf("%s: found %d, want %d; asked %d times, want %d; %v", what, len(found), want, api.lists, asked, err)
				}
			}
			list("while it is there", 1, 1)
			api.err = gone
			list("when it is removed", 0, 2)
			api.err = nil
			list("soon after", 0, 2)
			now = now.Add(askAgain)
			list("a minute later", 1, 3)
		})
	}
}

// TestUnknown: what the cluster has never known is not listed, and a list that fails is an error.
func TestUnknown(t *testing.T) {
	api := &server{err: errDown}
	if found, err := New(kind.GroupKind(), api, meta.NewDefaultRESTMapper(nil)).List(t.Context(), "shop", time.Unix(0, 0)); err != nil || len(found) > 0 || api.lists > 0 {
		t.Errorf("unknown: %v, %v, asked %d times", found, err, api.lists)
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
	mapper.Add(kind, meta.RESTScopeNamespace)
	if _, err := New(kind.GroupKind(), api, mapper).List(t.Context(), "shop", time.Unix(0, 0)); !errors.Is(err, errDown) {
		t.Errorf("failing: %v", err)
	}
}
