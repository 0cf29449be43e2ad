// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/config"
)

// kind is a kind as its definition describes it.
type kind struct {
	resource   schema.GroupVersionResource
	namespaced bool
	status     bool
}

// definitions reads the embedded definitions, in the order of their files.
func definitions() ([]*unstructured.Unstructured, error) {
	names, err := fs.Glob(config.CRDs, "crd/*.yaml")
	if err != nil {
		return nil, err
	}

	var crds []*unstructured.Unstructured
	for _, name := range names {
		data, err := config.CRDs.ReadFile(name)
		if err != nil {
			return nil, err
		}

		objects, err := parse(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}

		crds = append(crds, objects...)
	}

	return crds, nil
}

var kinds = sync.OnceValue(func() map[schema.GroupVersionKind]kind {
	crds, err := definitions()
	if err != nil {
		panic(err)
	}

	result := map[schema.GroupVersionKind]kind{}
	for _, crd := range crds {
		resource := resourceOf(crd)
		name, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
		_, status, _ := unstructured.NestedMap(versionOf(crd), "subresources", "status")
		result[resource.GroupVersion().WithKind(name)] = kind{resource: resource, namespaced: scope == "Namespaced", status: status}
	}

	return result
})

// versionOf is the one version of a definition.
func versionOf(crd *unstructured.Unstructured) map[string]any {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	return versions[0].(map[string]any)
}

func resourceOf(crd *unstructured.Unstructured) schema.GroupVersionResource {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	return schema.GroupVersionResource{Group: group, Version: versionOf(crd)["name"].(string), Resource: plural}
}

// parse reads the objects of a YAML stream.
func parse(data []byte) ([]*unstructured.Unstructured, error) {
	reader := yamlstream.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var objects []*unstructured.Unstructured
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}

		object := &unstructured.Unstructured{}
		asJSON, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return nil, err
		}

		if string(asJSON) == "null" { // comments alone
			continue
		}

		if err := object.UnmarshalJSON(asJSON); err != nil {
			return nil, err
		}

		objects = append(objects, object)
	}
}

// read returns the objects in the YAML files of a folder, by file; files of other programs are named in except.
func read(t *testing.T, folder string, except ...string) map[string][]*unstructured.Unstructured {
	t.Helper()

	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	if len(files) == 0 {
		t.Fatalf("no file in %s, want at least one", folder)
	}

	result := map[string][]*unstructured.Unstructured{}
	for _, file := range files {
		if slices.Contains(except, filepath.Base(file)) {
			continue
		}

		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		objects, err := parse(data)
		if err != nil {
			t.Fatalf("parsing %s: %v", file, err)
		}

		result[filepath.Base(file)] = objects
	}

	return result
}

// fixtures returns the objects that use every field.
func fixtures(t *testing.T) []*unstructured.Unstructured {
	t.Helper()

	files := read(t, "testdata/fixtures")
	var all []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(files)) {
		all = append(all, files[name]...)
	}

	return all
}

// scheme knows the Go types of all kinds.
func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()

	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		analysisv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme, ensurancev1alpha1.AddToScheme,
		predictionv1alpha1.AddToScheme, topologyv1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}

	return s
}

// content is an object without what the server adds.
func content(object *unstructured.Unstructured) map[string]any {
	result := runtime.DeepCopyJSON(object.Object)
	delete(result, "metadata")
	return result
}
