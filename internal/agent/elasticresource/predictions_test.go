// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"encoding/json"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/agent/oncelog"
)

// TestDefinitionReinstalled checks that the last state stays while the CustomResourceDefinition is missing, and that the object is
// recreated at the next read after it is back. A conflicting write is retried at the next read.
func TestDefinitionReinstalled(t *testing.T) {
	resource := schema.GroupResource{Group: predictionv1alpha1.GroupVersion.Group, Resource: "timeseriespredictions"}
	objects := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	var stored *unstructured.Unstructured
	var refused error
	applied := 0

	objects.PrependReactor("*", resource.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch, writes := a.(clienttesting.PatchAction)
		switch {
		case refused != nil && (writes || apierrors.IsNotFound(refused)):
			return true, nil, refused
		case writes:
			applied++
			stored = &unstructured.Unstructured{}
			return true, stored, json.Unmarshal(patch.GetPatch(), &stored.Object)
		case stored == nil:
			return true, nil, apierrors.NewNotFound(resource, "x")
		}

		return true, stored.DeepCopy(), nil
	})

	core := fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: predictionv1alpha1.NodeResourceTemplateConfigMap},
		Data:       map[string]string{predictionv1alpha1.NodeResourceTemplateKey: testTemplate},
	})
	p := &predictionSync{core: core, objects: objects, namespace: "crane-system", write: true, changes: oncelog.New(logr.Discard())}

	reads := func(what string, made int, known bool) {
		t.Helper()

		p.sync(t.Context(), newNode())

		if applied != made || (p.latest().tsp != nil) != known || !p.latest().requested {
			t.Errorf("%s: made %d times, want %d; %+v", what, applied, made, p.latest())
		}
	}

	gone := apierrors.NewNotFound(resource, "")
	refused = gone
	reads("not installed yet", 0, false)
	refused = apierrors.NewConflict(resource, "x", nil)
	reads("overtaken", 0, false)
	refused = nil
	reads("installed", 1, true)

	reads("it is there", 1, true)
	stored = nil
	refused = gone
	reads("removed", 1, true)
	reads("still away", 1, true)
	refused = nil
	reads("installed again", 2, true)
}
