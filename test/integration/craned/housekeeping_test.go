// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// TestServicesAndVolumes checks with craned's own rights that Services are compared with their EndpointSlices, and PersistentVolumes with
// their claims: without the second kind, the results are others.
func TestServicesAndVolumes(t *testing.T) {
	c := newClient(t)
	const ns = "housekeeping"
	harness.EnsureNamespace(t, c, ns)
	service := func(name string) client.Object {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
		}
	}

	create(t, c, service("lb-empty"), service("lb-external"), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: ns, Name: "lb-external", Labels: map[string]string{discoveryv1.LabelServiceName: "lb-external"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
	})

	access := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claimed := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "claimed"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: access, VolumeName: "pv-claimed", StorageClassName: new(""),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}

	create(t, c, claimed)
	volume := func(name, claim string, uid types.UID, phase corev1.PersistentVolumePhase) {
		v := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: access,
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example", VolumeHandle: name}},
				ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: ns, Name: claim, UID: uid},
			},
		}

		create(t, c, v)
		created := v.DeepCopy() // A controller may write in between.

		v.Status.Phase = phase
		v.Status.LastPhaseTransitionTime = new(metav1.NewTime(time.Now().AddDate(0, 0, -30)))
		if err := c.Status().Patch(t.Context(), v, client.MergeFrom(created)); err != nil {
			t.Fatal(err)
		}
	}

	volume("pv-claimed", "claimed", claimed.UID, corev1.VolumeBound)
	volume("pv-released", "gone", "a-claim-of-the-past", corev1.VolumeReleased)

	startCraned(t, servePrometheus(t).URL())
	for _, test := range []struct {
		recommender, kind string
		selector          analysisv1alpha1.NamespaceSelector
		// want are texts in the description of the Ready condition, by target.
		want    map[string]string
		deleted client.Object
	}{
		{"Service", "Service", analysisv1alpha1.NamespaceSelector{MatchNames: []string{ns}}, map[string]string{ns + "/lb-empty": "It has no backend; it is"}, service("lb-empty")},
		{"Volume", "PersistentVolume", analysisv1alpha1.NamespaceSelector{Any: true}, map[string]string{
			"/pv-claimed":  "No number of pods that mounted claim housekeeping/claimed is known",
			"/pv-released": "claim housekeeping/gone, whose data it holds, is gone",
		}, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-released"}}},
	} {
		name := "housekeeping-" + strings.ToLower(test.recommender)
		create(t, c, &analysisv1alpha1.RecommendationRule{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: analysisv1alpha1.RecommendationRuleSpec{
				ResourceSelectors: []analysisv1alpha1.ResourceSelector{{Kind: test.kind}}, NamespaceSelector: test.selector, RunInterval: "24h",
				Recommenders: []analysisv1alpha1.Recommender{{Name: test.recommender}},
			},
		})

		awaitRule(t, c, name, "RoundCompleted")
		got, err := recommendations(t.Context(), c, name)
		if err != nil || len(got) != len(test.want) {
			t.Errorf("%s: %d Recommendations, want %d, %v: %v", test.recommender, len(got), len(test.want), err, got)
		}

		for target, want := range test.want {
			if text := got[target].Status.Description; !strings.Contains(text, want) {
				t.Errorf("%s: description %q, want %q; conditions %v", target, text, want, got[target].Status.Conditions)
			}
		}

		gone := func(o client.Object) {
			t.Helper()

			eventually(t, fmt.Sprintf("%s: deletion of %T", test.recommender, o), func(ctx context.Context) error {
				err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
				if apierrors.IsNotFound(err) {
					return nil
				}

				return cmp.Or(err, errors.New("it exists"))
			})
		}

		rec := got[client.ObjectKeyFromObject(test.deleted).String()]
		harness.Delete(t, c, test.deleted)
		gone(test.deleted)

		rec.Annotations = map[string]string{"note": "changed"} // Deletions of these kinds are not watched.
		if err := c.Update(t.Context(), &rec); err != nil {
			t.Fatal(err)
		}

		gone(&rec)
	}
}
