// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package sizesources

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/workload"
)

// TestRead_VerticalPodAutoscalers: an autoscaler that acts is listed, and nobody claims beside it that nothing else sets requests.
func TestRead_VerticalPodAutoscalers(t *testing.T) {
	const text = `
apiVersion: autoscaling.k8s.io/v1
kind: VerticalPodAutoscaler
metadata: {namespace: shop, name: web}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  updatePolicy: {updateMode: MODE}
status: {recommendation: {containerRecommendations: [{containerName: app, target: {cpu: 250m, memory: 256Mi}}]}}
`
	target := workload.Workload{Ref: workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}

	for name, c := range map[string]struct {
		mode      string
		forbidden bool
		acts      bool
		why       string
	}{
		"acts":      {mode: "Recreate", acts: true, why: "VerticalPodAutoscaler web"},
		"off":       {mode: `"Off"`, why: "nothing else sets requests"},
		"forbidden": {mode: "Recreate", forbidden: true, why: "nothing else that can be read sets requests"},
	} {
		vpa := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.Replace(text, "MODE", c.mode, 1)), &vpa.Object); err != nil {
			t.Fatal(err)
		}

		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, analysisv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme} {
			if err := add(scheme); err != nil {
				t.Fatal(err)
			}
		}

		reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(vpa).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if list.GetObjectKind().GroupVersionKind().Group == "autoscaling.k8s.io" && c.forbidden {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "verticalpodautoscalers"}, "", nil)
				}

				return inner.List(ctx, list, opts...)
			},
		}).Build()

		found, err := Read(t.Context(), reader, target)
		if err != nil || len(found.Sources) != 2 {
			t.Fatalf("%s: Read = %+v, %v, want the template and the autoscaler", name, found, err)
		}
		if got := found.Sources[0].Why; !strings.Contains(got, c.why) || found.Sources[0].Acts == c.acts {
			t.Errorf("%s: the template acts: %t, %q, want %t, %q", name, found.Sources[0].Acts, got, !c.acts, c.why)
		}
		if got := found.Sources[1]; got.Acts != c.acts || !c.forbidden && got.CPU != "250m" {
			t.Errorf("%s: the autoscaler is %+v, want that it acts: %t, with its requests", name, got, c.acts)
		}
	}
}
