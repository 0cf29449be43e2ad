// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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

// TestManifestsOfDocsAreAccepted applies the objects of Crane's kinds in the pages of docs/ without keeping them.
func TestManifestsOfDocsAreAccepted(t *testing.T) {
	const folder = "../../../docs"
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	applied := map[string]bool{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}

		for _, match := range block.FindAllSubmatch(file(t, path), -1) {
			objects, err := parse(match[1])
			if err != nil {
				continue // A part of a manifest, or another format.
			}

			for _, object := range objects {
				if _, ok := kinds()[object.GroupVersionKind()]; !ok {
					continue
				}

				if kinds()[object.GroupVersionKind()].namespaced {
					object.SetNamespace(namespace) // That of the page does not exist here.
				}

				err := applyDry(t, object)
				if err != nil {
					t.Errorf("%s: creating %s %s: %v", path, object.GetKind(), object.GetName(), err)
				}

				applied[object.GetKind()] = true
			}
		}

		return nil
	})
	if err != nil {
		t.Fatalf("reading the pages of %s: %v", folder, err)
	}

	want := []string{
		"AvoidanceAction", "EffectiveHorizontalPodAutoscaler", "EffectiveVerticalPodAutoscaler", "NodeQOS", "PodQOS", "Recommendation", "RecommendationRule",
		"TimeSeriesPrediction",
	}
	for _, kind := range want {
		if !applied[kind] {
			t.Errorf("no page of %s has a manifest of kind %s, want one of each of %v", folder, kind, want)
		}
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
