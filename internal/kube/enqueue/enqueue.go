// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package enqueue maps a changed object to reconcile requests for other objects, and repeats reconciles that met a conflict.
package enqueue

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// All maps any object to all objects of the kind of a list.
func All[L any, P interface {
	*L
	client.ObjectList
}](reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) []reconcile.Request {
		return List(ctx, reader, P(new(L)))
	}
}

// List reads objects into list and returns a request for each. A cache that cannot be read is stopping; there are no requests
// then.
func List(ctx context.Context, reader client.Reader, list client.ObjectList, options ...client.ListOption) []reconcile.Request {
	if err := reader.List(ctx, list, options...); err != nil {
		return nil
	}

	var out []reconcile.Request
	_ = meta.EachListItem(list, func(o runtime.Object) error { // It fails only for a value that is no list.
		if found, ok := o.(client.Object); ok {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(found)})
		}

		return nil
	})

	return out
}
