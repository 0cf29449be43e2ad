// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"strings"
	"testing"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/integration/harness"
)

// TestPodDryRuns checks that a size that a policy refuses is never stored where craned may try the creation of pods, with each reach, that the
// status has the answer, and that a size that the policy admits is adopted. It does not run beside others, because the right is for all of them.
func TestPodDryRuns(t *testing.T) {
	objects, err := manifest.ReadDir(config.Components, "components/pod-dry-runs")
	if err != nil {
		t.Fatal(err)
	}

	for _, o := range objects {
		harness.Create(t, admin, o)
	}

	f := newFixture(t)
	f.forbidSmallPods("800m")
	reaches := []analysisv1alpha1.AdoptionReach{
		analysisv1alpha1.AdoptionReachInPlace, analysisv1alpha1.AdoptionReachInPlaceOrRecreate, analysisv1alpha1.AdoptionReachRecreate, analysisv1alpha1.AdoptionReachNewPods,
	}

	for _, reach := range reaches {
		name := strings.ToLower(string(reach))
		f.Deploy(name, 2)
		harness.Change(f.Namespace, f.recommend(name, analysisv1alpha1.AdoptionTypeStatus, "300m", "512Mi"), name, func(rec *analysisv1alpha1.Recommendation) {
			rec.Spec.Adoption = &analysisv1alpha1.AdoptionSpec{Reach: reach}
			rec.Spec.AdoptionType = auto
		})
	}

	startCraned(t)
	for _, reach := range reaches {
		name := strings.ToLower(string(reach))
		f.awaitMessage(name, "the API server refuses a pod of this size: ")
		f.awaitMessage(name, "too small")
		f.checkUntouched(name)
	}

	f.Deploy("web", 2)
	f.recommend("web", auto, "850m", "512Mi")
	f.AwaitPods("web", "have the recommended requests", checkRequests("850m", "512Mi"))
	f.awaitPhase("web", adoption.Resting)
	f.awaitMessage("web", "as recommended")
}
