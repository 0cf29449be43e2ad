// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package savingsrecord reads and writes the record of savings, which is a ConfigMap in Crane's namespace. craned writes it; crane report
// and the dashboard read it. The content of the record belongs to pkg/savings.
package savingsrecord

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/pkg/savings"
)

const (
	// ConfigMapName is the name of the record in Crane's namespace.
	ConfigMapName = "crane-savings"

	fieldManager = "craned-savings"
)

// Load reads the record; nil without an error if there is none yet. If single months cannot be read, it returns the others with the error.
func Load(ctx context.Context, c client.Reader, namespace string) (*savings.Record, error) {
	r, _, err := load(ctx, c, namespace)
	return r, err
}

func load(ctx context.Context, c client.Reader, namespace string) (*savings.Record, *corev1.ConfigMap, error) {
	object := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ConfigMapName}, object)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, ConfigMapName, err)
	}

	r, err := savings.Parse(object.Data)
	if err != nil {
		return r, object, fmt.Errorf("ConfigMap %s/%s: %w; correct or delete the key", namespace, ConfigMapName, err)
	}

	return r, object, nil
}

// Update reads the record, changes it, and writes it. It fails if another client has changed the record meanwhile, and if a part of the
// record cannot be read: what is unreadable is not overwritten.
func Update(ctx context.Context, read client.Reader, write client.Writer, namespace string, change func(*savings.Record) error) error {
	r, object, err := load(ctx, read, namespace)
	if err != nil {
		return err
	}

	if r == nil {
		r = &savings.Record{}
	}

	if err := change(r); err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", namespace, ConfigMapName, err)
	}

	data, err := r.Encode()
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", namespace, ConfigMapName, err)
	}

	// Update has the resource version that was read, so a concurrent change is a conflict.
	if object == nil {
		err = write.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ConfigMapName}, Data: data,
		}, client.FieldOwner(fieldManager))
	} else {
		object.Data = data
		err = write.Update(ctx, object, client.FieldOwner(fieldManager))
	}

	if err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", namespace, ConfigMapName, err)
	}

	return nil
}
