// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// store creates the objects of testdata/stored under definitions as loose as can be and without a status subresource,
// before Crane's definitions replace these.
func store(ctx context.Context, crds []*unstructured.Unstructured) error {
	objects, err := storedObjects()
	if err != nil {
		return err
	}

	for _, object := range objects {
		for _, crd := range crds {
			if resourceOf(crd) != kinds()[object.GroupVersionKind()].resource {
				continue
			}

			loose := loosened(crd)
			if _, err := client.Resource(crdResource).Apply(ctx, loose.GetName(), loose, metav1.ApplyOptions{FieldManager: "install"}); err != nil {
				return err
			}

			if err := served(ctx, loose); err != nil {
				return err
			}
		}

		if _, err := on(object).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("store %s: %w", object.GetKind(), err)
		}
	}

	return nil
}

func storedObjects() ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile("testdata/stored/objects.yaml")
	if err != nil {
		return nil, err
	}

	return parse(data)
}

func loosened(crd *unstructured.Unstructured) *unstructured.Unstructured {
	loose := crd.DeepCopy()
	version := versionOf(loose)
	delete(version, "subresources")
	version["schema"] = map[string]any{"openAPIV3Schema": map[string]any{
		"type": "object", "x-kubernetes-preserve-unknown-fields": true,
	}}
	_ = unstructured.SetNestedSlice(loose.Object, []any{version}, "spec", "versions")

	return loose
}

// tightened waits until the server checks by Crane's definitions what it stored before.
func tightened(ctx context.Context) error {
	objects, err := storedObjects()
	if err != nil {
		return err
	}

	for _, object := range objects {
		object.SetName(object.GetName() + "-again")
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			_, err := on(object).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return apierrors.IsInvalid(err), nil
		})
		if err != nil {
			return fmt.Errorf("wait until %s is checked: %w", object.GetKind(), err)
		}
	}

	return nil
}

// TestStoredObjectsOutliveTheUpgrade reads and changes what was stored before: the status is kept, a field that is bad
// stays until it is changed, and the others can be changed.
func TestStoredObjectsOutliveTheUpgrade(t *testing.T) {
	objects, err := storedObjects()
	if err != nil {
		t.Fatal(err)
	}

	patches := map[string]struct{ good, bad, fix string }{
		"RecommendationRule": {
			good: `{"spec":{"namespaceSelector":{"any":false}}}`,
			bad:  `{"spec":{"runInterval":"monthly"}}`,
			fix:  `{"spec":{"runInterval":"14d"}}`,
		},
		"NodeQOS": {
			good: `{"spec":{"nodeQualityProbe":{"timeoutSeconds":5}}}`,
			bad:  `{"spec":{"rules":[{"name":"CPU Low","metricRule":{"name":"cpu_total_usage","value":1},"actionName":"throttle"}]}}`,
			fix:  `{"spec":{"rules":[{"name":"cpu","metricRule":{"name":"cpu_total_usage","value":1},"actionName":"throttle"}]}}`,
		},
	}

	for _, object := range objects {
		t.Run(object.GetKind(), func(t *testing.T) {
			stored, err := on(object).Get(t.Context(), object.GetName(), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}

			if got, want := stored.Object["status"], object.Object["status"]; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("status %v, want %v", got, want)
			}

			patch := func(text string, subresources ...string) error {
				_, err := on(object).Patch(t.Context(), object.GetName(), types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
				return err
			}

			if err := patch(`{"metadata":{"labels":{"moved":"true"}}}`); err != nil {
				t.Errorf("label: %v", err)
			}
			if err := patch(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Invalid","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`, "status"); err != nil {
				t.Errorf("status: %v", err)
			}
			if err := patch(patches[object.GetKind()].good); err != nil {
				t.Errorf("another field: %v", err)
			}

			if err := patch(patches[object.GetKind()].bad); !apierrors.IsInvalid(err) {
				t.Errorf("the bad field, still bad: want it to be invalid, got %v", err)
			}
			if err := patch(patches[object.GetKind()].fix); err != nil {
				t.Errorf("the bad field, made good: %v", err)
			}
		})
	}
}
