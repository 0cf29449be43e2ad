// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/integration/harness"
)

// testSecondApply checks that a GitOps controller that applies a workload once more, with a field manager of its own, changes nothing after
// Crane has adopted requests in its pods, and nothing after Crane has adopted replicas that the manifest does not set.
func testSecondApply(t *testing.T) {
	f := newFixture(t)
	template := harness.PodTemplate("web")
	applied := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Name, Name: "web"},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}

	f.applyAsGitOps(applied)
	f.AwaitReady("web", 1)

	f.recommend("web", auto, "2", "1Gi")
	f.AwaitPods("web", "have the raised requests", checkRequests("2", "1Gi"))
	f.awaitPhase("web", adoption.Resting)
	f.checkNoDrift(applied)
	checkGeneration(t, f.AwaitPods("web", "keep the raised requests", checkRequests("2", "1Gi")), 2)

	f.recommendReplicas("web", "web-replicas", 3)
	f.AwaitReady("web", 3)
	f.checkNoDrift(applied)
	f.AwaitReady("web", 3)
}

// checkNoDrift applies a workload and checks that no field changes.
func (f *fixture) checkNoDrift(applied *appsv1.Deployment) {
	f.T.Helper()

	before, err := f.deployment(f.T.Context(), applied.Name)
	if err != nil {
		f.T.Fatal(err)
	}

	if !managedBy(before, "gitops") || len(before.Annotations) < 2 { // One is that of the controller of Deployments.
		f.T.Errorf("managers %v, annotations %v, want gitops as manager and two annotations", before.ManagedFields, before.Annotations)
	}

	after := f.applyAsGitOps(applied)
	if after.Generation != before.Generation || len(after.Annotations) < len(before.Annotations) {
		f.T.Errorf("a second apply changes generation %d to %d, annotations %v to %v, want the same generation and annotations", before.Generation, after.Generation, before.Annotations, after.Annotations)
	}
}

// applyAsGitOps applies a workload as the controller of a GitOps repository does, with the fields that are set alone.
func (f *fixture) applyAsGitOps(d *appsv1.Deployment) *appsv1.Deployment {
	f.T.Helper()

	raw, err := json.Marshal(d)
	if err != nil {
		f.T.Fatal(err)
	}

	o := d.DeepCopy()
	if err := f.Patch(f.T.Context(), o, client.RawPatch(types.ApplyPatchType, raw), client.FieldOwner("gitops"), client.ForceOwnership); err != nil {
		f.T.Fatal(err)
	}

	return o
}
