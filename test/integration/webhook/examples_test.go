// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1alpha1 "crane.io/crane/api/policy/v1alpha1"
	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
)

// TestExamplesOfGocrane creates every object of Crane's kinds in gocrane's examples, as kubectl does, in a dry run through schemas and
// webhooks.
func TestExamplesOfGocrane(t *testing.T) {
	const folder = "../../../../shared/gocrane/examples"
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("gocrane's examples are not beside the repository: %v", err)
	}

	// Stale files, with the error: gocrane's own API has no such field or no such object either.
	stale := map[string]string{
		"load-test.yaml":            "predictionConfig",
		"analytics/config_set.yaml": "name",
	}
	startWebhooks(t)

	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".yaml" {
			return err
		}

		data, err := os.ReadFile(path.Join(folder, name))
		if err != nil {
			return err
		}

		t.Run(name, func(t *testing.T) {
			err := createExample(t, data)
			if part, isStale := stale[name]; isStale {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v, want one with %q", err, part)
				}
				delete(stale, name)
			} else if err != nil {
				t.Error(err)
			}
		})

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	for name := range stale {
		t.Errorf("no file %s, want it as in the table", name)
	}
}

// TestPreinstalledRules creates the rules of the kustomize component, which must cause no warning.
func TestPreinstalledRules(t *testing.T) {
	objects, err := manifest.ReadDir(config.Components, "components/recommendation-rules")
	if err != nil {
		t.Fatal(err)
	}

	startWebhooks(t)
	var names []string
	for _, o := range objects {
		names = append(names, o.GetName())
		client, w, err := resourceOf(o)
		if err != nil {
			t.Fatal(err)
		}

		_, err = client.Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		if err != nil || len(w.list) > 0 || o.GetLabels()["analysis.crane.io/recommendation-rule-preinstall"] != "true" {
			t.Errorf("%s: %v, warnings %q, labels %v, want no warning and the label of preinstalled rules", o.GetName(), err, w.list, o.GetLabels())
		}
	}

	// The names in gocrane, so that an installation over its rules replaces them.
	if want := []string{"workloads-rule", "idlenodes-rule", "services-rule", "persistentvolumes-rule"}; !slices.Equal(names, want) {
		t.Errorf("rules %q, want %q", names, want)
	}
}

// createExample creates the objects of Crane's kinds in a dry run with strict field validation.
func createExample(t *testing.T, data []byte) error {
	t.Helper()

	objects, err := manifest.ParseString(string(data))
	if err != nil {
		return err
	}

	for _, o := range objects {
		switch {
		case !strings.HasSuffix(o.GroupVersionKind().Group, ".crane.io"):

		case o.GetKind() == "RecommendationConfiguration":
			_, err = policyv1alpha1.DecodeRecommendationConfiguration(data)

		default:
			client, _, clientErr := resourceOf(o)
			if clientErr != nil {
				return clientErr
			}

			_, err = client.Create(t.Context(), o, metav1.CreateOptions{
				DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
			})
		}

		if err != nil {
			return err
		}
	}

	return nil
}
