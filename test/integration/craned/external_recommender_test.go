// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// TestExternalRecommender runs the program of examples/recommender, craned with one more recommender, and checks that a rule gets
// its Recommendations beside those of a built-in one.
func TestExternalRecommender(t *testing.T) {
	program := filepath.Join(t.TempDir(), "recommender")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "crane.io/crane/examples/recommender")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building examples/recommender: %v\n%s", err, out)
	}

	c := newClient(t)
	prom := servePrometheus(t)
	headroom := rule("headroom", "24h", "shop")
	headroom.Spec.Recommenders = []analysisv1alpha1.Recommender{
		{Name: "Replicas"}, {Name: "HeadroomCPU", Config: map[string]string{"headroom": "0.5"}},
	}

	create(t, c, deployment("shop", "web"), deployment("shop", "young"), headroom)
	harness.StartCraned(t, waitTimeout, control, program, prom.URL())
	awaitRule(t, c, "headroom", "RoundCompleted")

	var list analysisv1alpha1.RecommendationList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}

	found := map[string]analysisv1alpha1.Recommendation{}
	for _, r := range list.Items {
		if r.Labels[analysisv1alpha1.LabelRuleName] == headroom.Name {
			found[string(r.Spec.Type)+"/"+r.Spec.TargetRef.Name] = r
		}
	}

	web, ok := found["HeadroomCPU/web"]
	if !ok || len(found) != 4 {
		t.Fatalf("rule headroom has %d Recommendations %v, want one of Replicas and one of HeadroomCPU for web and for young", len(found), found)
	}

	if web.Status.Action != "Patch" {
		t.Errorf("HeadroomCPU/web has action %q, want Patch: %s", web.Status.Action, web.Status.Description)
	}

	near(t, "CPU request of web, its usage and a half more", requested(t, web.Status.RecommendedInfo)[corev1.ResourceCPU], 0.2*1.5)
	near(t, "present CPU request of web", requested(t, web.Status.CurrentInfo)[corev1.ResourceCPU], 1)

	// A day of history belongs to one or two days in UTC.
	const want = "days; 3 are needed."
	if young := found["HeadroomCPU/young"]; !strings.HasSuffix(young.Status.Description, want) || young.Status.RecommendedInfo != "" {
		t.Errorf("HeadroomCPU/young says %q and recommends %q, want %q and nothing", young.Status.Description, young.Status.RecommendedInfo, want)
	}
}
