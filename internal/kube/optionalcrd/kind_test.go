// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package optionalcrd

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
	// answer is the error by version; nil is none.
	answer func(version string) error
}

func (s *server) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.lists++
	if s.answer != nil {
		s.err = s.answer(list.GetObjectKind().GroupVersionKind().Version)
	}
	if into, ok := list.(*unstructured.UnstructuredList); ok && s.err == nil {
		into.Items = []unstructured.Unstructured{{}}
	}

	return s.err
}

// TestList_DefinitionRemoved checks that a kind whose definition is removed while the mapper still has it has no objects and causes no
// error, so that its callers continue. It is discovered again after a while.
func TestList_DefinitionRemoved(t *testing.T) {
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
			list("when it is removed", 0, 3) // Once more, in case it is served in another version.
			api.err = nil
			list("soon after", 0, 3)
			now = now.Add(unknownTTL)
			list("a minute later", 1, 4)
		})
	}
}

// forgetful is a mapper that discovers the served kinds at the first use after a Reset.
type forgetful struct {
	meta.RESTMapper
	serves func() meta.RESTMapper
	resets int
}

func (f *forgetful) Reset() {
	f.resets++
	f.RESTMapper = f.serves()
}

// TestList_VersionChanged checks that objects are found at once when a definition serves another version than before.
func TestList_VersionChanged(t *testing.T) {
	version := "v1alpha1"
	mapper := &forgetful{serves: func() meta.RESTMapper {
		m := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: kind.Group, Version: version}})
		m.Add(schema.GroupVersionKind{Group: kind.Group, Version: version, Kind: kind.Kind}, meta.RESTScopeNamespace)
		return m
	}}

	mapper.Reset()
	api := &server{}
	api.answer = func(asked string) error {
		if asked != version {
			return apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: "scaledobjects"}, "")
		}

		return nil
	}

	k := New(kind.GroupKind(), api, mapper)
	for _, version = range []string{"v1alpha1", "v1", "v1", "v2"} {
		if found, err := k.List(t.Context(), "shop", time.Unix(0, 0)); err != nil || len(found) != 1 {
			t.Fatalf("List of the kind served as %s = %d, %v, want 1", version, len(found), err)
		}
	}

	if mapper.resets != 3 {
		t.Errorf("what is served was asked for %d times, want once and at the two changes", mapper.resets)
	}
}

// TestList_UnknownKind checks that an unknown kind is not listed, and that a failed list is an error.
func TestList_UnknownKind(t *testing.T) {
	api := &server{err: errDown}
	if found, err := New(kind.GroupKind(), api, meta.NewDefaultRESTMapper(nil)).List(t.Context(), "shop", time.Unix(0, 0)); err != nil || len(found) > 0 || api.lists > 0 {
		t.Errorf("List of an unknown kind = %v, %v after %d requests, want nothing without a request", found, err, api.lists)
	}

	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
	mapper.Add(kind, meta.RESTScopeNamespace)

	if _, err := New(kind.GroupKind(), api, mapper).List(t.Context(), "shop", time.Unix(0, 0)); !errors.Is(err, errDown) {
		t.Errorf("List = %v, want %v", err, errDown)
	}
}
