// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/pause"
	"crane.io/crane/test/integration/harness"
)

// TestPausedAdapter checks that the adapter has nothing to stop while Crane is paused: it serves forecasts, also in a namespace that has opted
// out, and may write no object except its certificate and the trust in it.
func TestPausedAdapter(t *testing.T) {
	c := newClient(t)
	ns := namespaceFor(t)
	harness.Create(t, c, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: pause.ConfigMapName}, Data: map[string]string{pause.KeyPaused: "true"},
	})

	var namespace corev1.Namespace
	if err := c.Get(t.Context(), client.ObjectKey{Name: ns}, &namespace); err != nil {
		t.Fatal(err)
	}

	namespace.Labels[analysisv1alpha1.LabelOptOut] = "true"
	if err := c.Update(t.Context(), &namespace); err != nil {
		t.Fatal(err)
	}

	start(t)
	path := writeServedForecast(t, ns)
	eventually(t, "the forecast is served", func(ctx context.Context) error { return want500m(ctx, path) })

	may := func(a authorizationv1.ResourceAttributes) bool {
		t.Helper()

		review, err := clientset().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:crane-system:metric-adapter", Groups: []string{"system:serviceaccounts", "system:authenticated"}, ResourceAttributes: &a,
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}

		return review.Status.Allowed
	}

	_, resources, err := clientset().Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}

	checked := 0
	for _, list := range resources {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}

		for _, r := range list.APIResources {
			resource, sub, _ := strings.Cut(r.Name, "/")
			for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
				if !slices.Contains(r.Verbs, verb) {
					continue
				}

				checked++
				a := authorizationv1.ResourceAttributes{Verb: verb, Group: gv.Group, Resource: resource, Subresource: sub, Name: "any"}
				if r.Namespaced {
					a.Namespace = ns
				}
				if may(a) && a.Group != "authentication.k8s.io" && a.Group != "authorization.k8s.io" {
					t.Errorf("the adapter may %s %s.%s, want no rights", verb, r.Name, a.Group)
				}
			}
		}
	}

	if own := (authorizationv1.ResourceAttributes{Verb: "update", Resource: "secrets", Namespace: "crane-system", Name: "metric-adapter-certificate"}); !may(own) || checked < 100 {
		t.Errorf("%d rights were checked and its certificate is %t, want 100 or more and true", checked, may(own))
	}
}
