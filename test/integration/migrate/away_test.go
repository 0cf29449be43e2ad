// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/migrate"
	"crane.io/crane/test/nightly"
)

// TestAway removes Crane from a cluster where the garbage collector and the HPA controller run, brings it back, and removes it for good.
func TestAway(t *testing.T) {
	nightly.Only(t) // TestAway of internal/migrate runs in memory
	f := newFixture(t)
	f.install("yaml", "crane-system", smallSize())
	f.simulate()
	f.settle()
	f.run("run", 0, registry, imageTag, "--evpa=off", "--continue")
	f.run("finish", 0, "--yes")
	f.settle()
	f.holdReplicas()

	before := f.snapshot()
	admin := f.control.Kubeconfig()
	away := func(want int, args ...string) string {
		t.Helper()

		out, errOut, code := f.crane(admin, append(append([]string{"migrate", "away"}, args...), "--scheduler=remove")...)
		if code != want {
			t.Fatalf("migrate away %v: exit code %d, want %d: %s%s", args, code, want, out, errOut)
		}

		return out
	}

	if plan := away(0, "plan"); !strings.Contains(plan, "release-autoscalers") || !strings.Contains(plan, "after a pause") {
		t.Errorf("plan: %s, want both steps in it", plan)
	}

	away(0, "run", "--dry-run")
	f.compare("dry run", before)
	away(4, "run")
	f.checkHPAs()
	away(0, "run", "--continue")
	f.checkGone()
	f.checkHPAs()
	f.run("undo", 0)
	f.settle()
	f.compareAway(before)

	away(0, "run", "--continue")
	f.run("finish", 0, "--yes")
	f.checkGone()
	f.checkHPAs()
}

// holdReplicas scales the target of an autoscaler with a forecast to 7 replicas.
func (f *fixture) holdReplicas() {
	f.Helper()

	namespace, name := smallSize().workload(1)
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		deployment := f.get("apps/v1", "Deployment", namespace, name)
		_ = unstructured.SetNestedField(deployment.Object, int64(7), "spec", "replicas")
		return f.client.Update(f.Context(), deployment)
	}); err != nil {
		f.Fatal(err)
	}

	f.eventually("the HPA controller has seen 7 replicas", func(context.Context) error {
		if n := field(f.get("autoscaling/v2", "HorizontalPodAutoscaler", namespace, "ehpa-"+name), "status", "currentReplicas"); n != "7" {
			return fmt.Errorf("%s replicas", n)
		}

		return nil
	})
}

// checkHPAs checks that the HPAs are plain ones.
func (f *fixture) checkHPAs() {
	f.Helper()

	for i := range smallSize().ehpas {
		namespace, name := smallSize().workload(i)
		hpa := namespaced("autoscaling/v2", "HorizontalPodAutoscaler", namespace, "ehpa-"+name, nil)

		err := f.client.Get(f.Context(), client.ObjectKeyFromObject(hpa), hpa)
		if i%10 == 0 { // a preview
			if !apierrors.IsNotFound(err) {
				f.Errorf("HPA of the preview %s: %v, want it not found", name, err)
			}
			continue
		}

		if err != nil {
			f.Error(err)
			continue
		}

		if text := fmt.Sprint(hpa.Object["spec"], hpa.GetLabels(), hpa.GetOwnerReferences()); strings.Contains(text, "crane") || !strings.Contains(text, "maxReplicas:10") || !strings.Contains(text, "averageUtilization:50") {
			f.Errorf("HPA of %s: %s, want one without Crane and as the user has set it", name, text)
		}
		if least := field(hpa, "spec", "minReplicas"); i == 1 && (least != "7" || hpa.GetAnnotations()[migrate.AnnotationMinReplicas] != "2") {
			f.Errorf("HPA of %s has a minimum of %s, %v, want the 7 of the forecast", name, least, hpa.GetAnnotations())
		}
	}
}

// checkGone checks that no object, kind or mark of Crane is left beside the records and the Namespace.
func (f *fixture) checkGone() {
	f.Helper()

	for ref, o := range f.snapshot() {
		if strings.HasPrefix(ref.Name, migrate.JournalName) || ref.Kind == "Namespace" || ref.Kind == "ServiceAccount" && ref.Name == "default" {
			continue
		}

		text := fmt.Sprint(o["metadata"], o["spec"])
		switch {
		case ref.Kind == "Deployment" && strings.HasPrefix(ref.Namespace, "app-"): // of users
		case ref.Namespace == "crane-system" && ref.Kind != "ConfigMap" && ref.Kind != "Secret", strings.Contains(ref.APIVersion, "crane.io"), strings.HasPrefix(text, "map[labels:map[app.kubernetes.io/part-of:crane"):
			f.Errorf("%s is left: %s, want it deleted", ref, text)
		case ref.Kind == "Node" && (strings.Contains(text, "interference") || strings.Contains(text, "node_hot_value")):
			f.Errorf("%s has marks: %s, want none", ref, text)
		case strings.HasPrefix(ref.Kind, "ClusterRole") && strings.Contains(ref.Name, "crane"):
			f.Errorf("%s is left, want it deleted", ref)

		case ref.Kind == "HorizontalPodAutoscaler":
			owners := (&object{Object: o}).GetOwnerReferences()
			if slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return strings.Contains(r.APIVersion, "crane.io") }) {
				f.Errorf("%s would be collected with its owner: %v, want no such owner", ref, owners)
			}
		}
	}
}

// compareAway compares the cluster with a snapshot. Owners that an undo creates have another uid.
func (f *fixture) compareAway(before map[migrate.Ref]map[string]any) {
	f.Helper()

	for _, o := range before {
		withoutUIDs(o)
	}

	f.ignoreUIDs = true
	defer func() { f.ignoreUIDs = false }()

	f.compare("undo", before)
}

func withoutUIDs(o map[string]any) {
	u := &object{Object: o}
	owners := u.GetOwnerReferences()
	for i := range owners {
		owners[i].UID = ""
	}

	if len(owners) > 0 {
		u.SetOwnerReferences(owners)
	}

	for _, label := range []string{"autoscaling.crane.io/effective-hpa-uid", "analysis.crane.io/recommendation-rule-uid"} {
		unstructured.RemoveNestedField(o, "metadata", "labels", label)
	}
}
