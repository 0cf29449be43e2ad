// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// TestFixturesUseEveryField walks the Go type of each kind and looks for each of its JSON fields in the fixtures.
func TestFixturesUseEveryField(t *testing.T) {
	used := map[schema.GroupVersionKind]map[string]bool{}
	for _, object := range fixtures(t) {
		gvk := object.GroupVersionKind()
		if used[gvk] == nil {
			used[gvk] = map[string]bool{}
		}

		collectPaths(object.Object, "", used[gvk])
	}

	types := scheme(t)
	for gvk := range kinds() {
		object, err := types.New(gvk)
		if err != nil {
			t.Errorf("no Go type for %v: %v", gvk, err)
			continue
		}

		fields := map[string]bool{}
		collectFields(reflect.TypeOf(object).Elem(), "", fields)

		for _, field := range slices.Sorted(maps.Keys(fields)) {
			if !used[gvk][field] {
				t.Errorf("no fixture of %s sets %s, want one", gvk.Kind, field)
			}
		}

		t.Logf("%s: %d fields", gvk.Kind, len(fields))
	}
}

// collectPaths notes each path in a JSON value; elements of a list are [], values of a map are also noted as {}.
func collectPaths(value any, path string, into map[string]bool) {
	into[path] = true
	switch value := value.(type) {
	case map[string]any:
		for key, element := range value {
			collectPaths(element, path+"."+key, into)
			collectPaths(element, path+"{}", into)
		}

	case []any:
		for _, element := range value {
			collectPaths(element, path+"[]", into)
		}
	}
}

var metadata = reflect.TypeFor[metav1.ObjectMeta]()

// collectFields notes the path of each JSON field below a Go type. What marshals itself has no fields of its own.
func collectFields(t reflect.Type, path string, into map[string]bool) {
	if path != "" {
		into[path] = true
	}

	if t.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return
	}

	switch t.Kind() {
	case reflect.Pointer:
		collectFields(t.Elem(), path, into)

	case reflect.Slice:
		collectFields(t.Elem(), path+"[]", into)

	case reflect.Map:
		collectFields(t.Elem(), path+"{}", into)

	case reflect.Struct:
		for field := range fields(t) {
			if field.Type == metadata {
				continue
			}

			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" {
				collectFields(field.Type, path, into)
			} else {
				collectFields(field.Type, path+"."+name, into)
			}
		}
	}
}

// fields ranges over the fields of a struct.
func fields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for field := range t.Fields() {
			if !yield(field) {
				return
			}
		}
	}
}

// TestFixturesKeepTheirFormInGo decodes each fixture strictly into its Go type and encodes it again.
func TestFixturesKeepTheirFormInGo(t *testing.T) {
	codecs := serializer.NewCodecFactory(scheme(t), serializer.EnableStrict)
	for _, object := range fixtures(t) {
		data, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}

		typed, err := runtime.Decode(codecs.UniversalDeserializer(), data)
		if err != nil {
			t.Errorf("decoding %s %s: %v", object.GetKind(), object.GetName(), err)
			continue
		}

		if diff := cmp.Diff(jsonValue(t, object), jsonValue(t, typed), quantities); diff != "" {
			t.Errorf("%s %s changed in Go (-sent +encoded), want no change:\n%s", object.GetKind(), object.GetName(), diff)
		}
		if copied := typed.DeepCopyObject(); !reflect.DeepEqual(typed, copied) {
			t.Errorf("%s %s: the deep copy differs, want it equal", object.GetKind(), object.GetName())
		}
	}
}

// quantities lets 4 and "4" be equal: a quantity may be sent as a number and is encoded as a string.
var quantities = cmp.FilterPath(func(p cmp.Path) bool { return true }, cmp.FilterValues(func(a, b any) bool {
	_, number := a.(json.Number)
	_, text := b.(string)
	return number && text
}, cmp.Comparer(func(a, b any) bool {
	number := a
	text := b
	if _, ok := a.(string); ok {
		number = b
		text = a
	}

	n, ok := number.(json.Number)
	return ok && n.String() == text
})))

func jsonValue(t *testing.T, value any) any {
	t.Helper()

	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}

	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()

	var result map[string]any
	if err := decoder.Decode(&result); err != nil {
		t.Fatal(err)
	}

	return result
}

// TestFixturesComeBack applies each fixture, its status through /status, and compares what the server has with it.
func TestFixturesComeBack(t *testing.T) {
	for _, object := range fixtures(t) {
		t.Run(object.GetKind()+"/"+object.GetName(), func(t *testing.T) {
			kind := kinds()[object.GroupVersionKind()]
			if _, sent := object.Object["status"]; sent != kind.status {
				t.Fatalf("the fixture has a status: %v, want %v as for the kind", sent, kind.status)
			}

			if _, err := apply(t.Context(), object); err != nil {
				t.Fatal(err)
			}

			if kind.status {
				if _, err := apply(t.Context(), object, "status"); err != nil {
					t.Fatalf("status: %v", err)
				}
			}

			stored, err := on(object).Get(t.Context(), object.GetName(), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(content(object), content(stored)); diff != "" {
				t.Errorf("the object changed (-sent +stored), want it unchanged:\n%s", diff)
			}
		})
	}
}

// TestSubstituteScales writes the replicas of a Substitute as an HPA does.
func TestSubstituteScales(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "Substitute",
		"metadata": map[string]any{"name": "scaled", "namespace": namespace},
		"spec":     map[string]any{"replicas": int64(1), "substituteTargetRef": map[string]any{"kind": "Deployment", "name": "web"}},
	}}

	if _, err := apply(t.Context(), object); err != nil {
		t.Fatal(err)
	}

	status := object.DeepCopy()
	delete(status.Object, "spec")

	status.Object["status"] = map[string]any{"replicas": int64(1), "labelSelector": "app=web"}
	if _, err := apply(t.Context(), status, "status"); err != nil {
		t.Fatal(err)
	}

	scale, err := on(object).Get(t.Context(), "scaled", metav1.GetOptions{}, "scale")
	if err != nil {
		t.Fatal(err)
	}

	if selector, _, _ := unstructured.NestedString(scale.Object, "status", "selector"); selector != "app=web" {
		t.Errorf("the scale has the selector %q, want app=web", selector)
	}
	if err := unstructured.SetNestedField(scale.Object, int64(5), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}

	if _, err := on(object).Update(t.Context(), scale, metav1.UpdateOptions{}, "scale"); err != nil {
		t.Fatal(err)
	}

	stored, err := on(object).Get(t.Context(), "scaled", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if replicas, _, _ := unstructured.NestedInt64(stored.Object, "spec", "replicas"); replicas != 5 {
		t.Errorf("%d replicas after the scale was set, want 5", replicas)
	}
}

// TestStatusOnTheMainResourceIsDropped shows what a client of gocrane loses that writes status with the object.
func TestStatusOnTheMainResourceIsDropped(t *testing.T) {
	for _, object := range fixtures(t) {
		if !kinds()[object.GroupVersionKind()].status {
			continue
		}

		object := object.DeepCopy()
		object.SetName("old-client-" + object.GetName())

		stored, err := on(object).Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("creating %s: %v", object.GetKind(), err)
			continue
		}

		if status, found := stored.Object["status"]; found {
			t.Errorf("%s: the main resource took the status %v, want none", object.GetKind(), status)
		}
	}
}

// TestMetricsAndBehaviorSuitAnHPA takes them from the fixtures and examples of gocrane into an HPA, word for word.
func TestMetricsAndBehaviorSuitAnHPA(t *testing.T) {
	resource := schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
	for _, object := range append(fixtures(t), read(t, "testdata/gocrane")["autoscaling.yaml"]...) {
		if object.GetKind() != "EffectiveHorizontalPodAutoscaler" {
			continue
		}

		spec := object.Object["spec"].(map[string]any)
		taken := map[string]any{"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
		for _, field := range []string{"minReplicas", "maxReplicas", "metrics", "behavior"} {
			if value, ok := spec[field]; ok {
				taken[field] = value
			}
		}

		hpa := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
			"metadata": map[string]any{"name": object.GetName(), "namespace": namespace},
			"spec":     taken,
		}}

		options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}}
		if _, err := client.Resource(resource).Namespace(namespace).Create(t.Context(), hpa, options); err != nil {
			t.Errorf("creating the HPA of %s: %v", object.GetName(), err)
		}
	}
}
