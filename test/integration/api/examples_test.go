// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	policyv1alpha1 "crane.io/crane/api/policy/v1alpha1"
)

// TestExamplesAreAccepted applies the objects of examples/ without keeping them, and decodes the files that are none.
func TestExamplesAreAccepted(t *testing.T) {
	const folder = "../../../examples"
	// A price book is no object; internal/recommendation/pricebook tests the example.
	for name, objects := range read(t, folder, "pricebook.yaml") {
		t.Run(name, func(t *testing.T) {
			for _, object := range objects {
				var err error
				switch object.GetKind() {
				case "DynamicSchedulerPolicy":
					_, err = policyv1alpha1.DecodeDynamicSchedulerPolicy(file(t, filepath.Join(folder, name)))
				case "RecommendationConfiguration":
					_, err = policyv1alpha1.DecodeRecommendationConfiguration(file(t, filepath.Join(folder, name)))
				default:
					err = applyDry(t, object)
				}

				if err != nil {
					t.Errorf("creating %s %s: %v", object.GetKind(), object.GetName(), err)
				}
			}
		})
	}
}

func applyDry(t *testing.T, object *unstructured.Unstructured) error {
	t.Helper()

	if _, ok := kinds()[object.GroupVersionKind()]; !ok {
		t.Skipf("%s is not a kind of Crane", object.GroupVersionKind())
	}

	if kinds()[object.GroupVersionKind()].namespaced && object.GetNamespace() == "" {
		object.SetNamespace(namespace)
	}

	data, err := object.MarshalJSON()
	if err != nil {
		return err
	}

	options := metav1.PatchOptions{
		FieldManager: "examples", FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll},
	}
	_, err = on(object).Patch(t.Context(), object.GetName(), types.ApplyPatchType, data, options)

	return err
}

func file(t *testing.T, path string) []byte {
	t.Helper()

	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return data
}
