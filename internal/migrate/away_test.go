// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
)

// craneUse are objects of users of Crane and what its controllers made of them. Uids are those of the owners.
const craneUse = `
{apiVersion: autoscaling.crane.io/v1alpha1, kind: EffectiveHorizontalPodAutoscaler, metadata: {name: held, namespace: shop, uid: u-held, finalizers: [autoscaling.crane.io/finalizer]}, spec: {minReplicas: 2, maxReplicas: 9}, status: {expectReplicas: 6}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: ehpa-held, namespace: shop, labels: {app.kubernetes.io/managed-by: effective-hpa-controller, autoscaling.crane.io/effective-hpa-uid: u-held, team: a}, annotations: {autoscaling.crane.io/adopted-spec: '{}'}, ownerReferences: [{apiVersion: autoscaling.crane.io/v1alpha1, kind: EffectiveHorizontalPodAutoscaler, name: held, uid: u-held, controller: true}]}, spec: {minReplicas: 2, maxReplicas: 9, behavior: {scaleDown: {stabilizationWindowSeconds: 60}}, scaleTargetRef: {kind: Deployment, name: held}, metrics: [{type: Resource, resource: {name: cpu}}, {type: External, external: {metric: {name: crane_autoscaling_prediction}}}]}, status: {currentReplicas: 6, desiredReplicas: 7}}
---
{apiVersion: autoscaling.crane.io/v1alpha1, kind: EffectiveHorizontalPodAutoscaler, metadata: {name: scheduled, namespace: shop, uid: u-scheduled}, spec: {maxReplicas: 4}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: ehpa-scheduled, namespace: shop, labels: {app.kubernetes.io/managed-by: effective-hpa-controller}, ownerReferences: [{apiVersion: autoscaling.crane.io/v1alpha1, kind: EffectiveHorizontalPodAutoscaler, name: scheduled, uid: u-scheduled, controller: true}]}, spec: {minReplicas: 4, maxReplicas: 4, scaleTargetRef: {kind: Deployment, name: scheduled}, metrics: [{type: Resource, resource: {name: cpu}}]}, status: {currentReplicas: 5, desiredReplicas: 5}}
---
{apiVersion: autoscaling.crane.io/v1alpha1, kind: EffectiveHorizontalPodAutoscaler, metadata: {name: plain, namespace: shop, uid: u-plain}, spec: {minReplicas: 3, maxReplicas: 8}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: ehpa-plain, namespace: shop, labels: {app.kubernetes.io/managed-by: effective-hpa-controller}, ownerReferences: [{apiVersion: autoscaling.crane.io/v1alpha1, kind: EffectiveHorizontalPodAutoscaler, name: plain, uid: u-plain, controller: true}]}, spec: {minReplicas: 3, maxReplicas: 8, scaleTargetRef: {kind: Deployment, name: plain}, metrics: [{type: Resource, resource: {name: cpu}}]}, status: {currentReplicas: 6, desiredReplicas: 6}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: ehpa-preview, namespace: shop, labels: {app.kubernetes.io/managed-by: effective-hpa-controller}}, spec: {minReplicas: 1, maxReplicas: 8, scaleTargetRef: {kind: Substitute, name: ehpa-preview}}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: own, namespace: shop}, spec: {minReplicas: 1, maxReplicas: 8, metrics: [{type: External, external: {metric: {name: queue}}}], scaleTargetRef: {kind: Deployment, name: own}}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: shop, uid: u-db}, spec: {template: {spec: {schedulerName: crane-scheduler, containers: [{name: main, resources: {requests: {cpu: '1', memory: 1Gi}}}]}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db-0, namespace: shop, ownerReferences: [{kind: StatefulSet, name: db, uid: u-db}]}, spec: {containers: [{name: main, resources: {requests: {cpu: 300m, memory: 1024Mi}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db-1, namespace: shop, ownerReferences: [{kind: StatefulSet, name: db, uid: u-db}]}, spec: {containers: [{name: main, resources: {requests: {cpu: 400m, memory: 1024Mi}}}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: oom-record, namespace: crane-system}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: of-a-user, namespace: crane-system}}
`

// newAwayFixture returns a cluster in memory with Crane and its users.
func newAwayFixture(t *testing.T) *fixture {
	t.Helper()

	f := newFixture(t)
	if err := errors.Join(f.migration(-1).Run(t.Context(), testOptions(), nil, true, false), f.migration(-1).Finish(t.Context())); err != nil {
		t.Fatal(err)
	}

	objects, err := manifest.ParseString(craneUse)
	if err != nil {
		t.Fatal(err)
	}

	for _, o := range objects {
		if err := f.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}

	return f
}

func awayOptions() Options {
	return Options{Away: true, Requests: RequestsTemplate, Scheduler: Keep, MetricAdapter: Remove}
}

// TestAway_Result checks what the removal of Crane leaves: HPAs that keep the replicas of the moment, requests, and what others have.
func TestAway_Result(t *testing.T) {
	f := newAwayFixture(t)
	before := f.snapshot()

	err := f.migration(-1).Run(t.Context(), Options{Away: true}, nil, true, false)
	for reason, object := range map[string]string{"RequestsOfPods": "StatefulSet shop/db", "PodsOfScheduler": "StatefulSet shop/db", "MetricsOfAdapter": "HorizontalPodAutoscaler shop/own"} {
		if err == nil || !regexp.MustCompile(reason+": .*\n   - "+object).MatchString(err.Error()) {
			t.Errorf("without decisions: %v, want %s with %s", err, reason, object)
		}
	}

	if err := f.migration(-1).Run(t.Context(), awayOptions(), nil, false, false); !errors.Is(err, ErrPaused) || !strings.Contains(err.Error(), "crane migrate away run --continue") {
		t.Fatalf("Run without --continue = %v, want a pause that names the next command", err)
	}

	if err := f.migration(-1).Run(t.Context(), testOptions(), nil, true, false); err == nil || !strings.Contains(err.Error(), "crane migrate away is in progress") {
		t.Errorf("a migration during a removal = %v, want an error that names the removal", err)
	}
	if err := f.migration(-1).Run(t.Context(), Options{Away: true}, nil, true, false); err != nil {
		t.Fatal(err)
	}

	now := f.snapshot()
	f.checkReleased(now)

	for ref, o := range now {
		object := &Object{Object: o}
		kept := ref.Kind == "Namespace" || strings.Contains(ref.Name, componentScheduler) || ref.Name == "crane-node-load-policy" || ref.Name == "crane-topology-result"
		if ref.group() == "autoscaling.crane.io" || strings.Contains(ref.Name, "craned") || object.GetLabels()[labelPartOf] == "crane" && !kept {
			t.Errorf("%s is left, want it removed", ref)
		}
	}

	for _, ref := range []Ref{namespacedRef("v1", "ConfigMap", "crane-system", "of-a-user"), namespacedRef("apps/v1", "Deployment", "crane-system", componentScheduler)} {
		if now[ref] == nil {
			t.Errorf("%s is removed, want it kept", ref)
		}
	}

	if requests := fmt.Sprint(now[namespacedRef("apps/v1", "StatefulSet", "shop", "db")]["spec"]); !strings.Contains(requests, "cpu:400m memory:1Gi") {
		t.Errorf("the template has %s, want requests of 400m and 1Gi", requests)
	}
	if err := f.migration(-1).Undo(t.Context()); err != nil {
		t.Fatal(err)
	}

	db := namespacedRef("apps/v1", "StatefulSet", "shop", "db") // its template stays
	delete(before, db)
	f.compareWithout(before, db)
}

// compareWithout compares the cluster with a snapshot. Owners have new uids.
func (f *fixture) compareWithout(want map[Ref]map[string]any, without Ref) {
	f.Helper()

	now := f.snapshot()
	for ref, o := range want {
		have := (&Object{Object: now[ref]}).DeepCopy()
		if owners := have.GetOwnerReferences(); len(owners) > 0 && ref.Kind == "HorizontalPodAutoscaler" {
			owner := namespacedRef("autoscaling.crane.io/v1alpha1", ehpaKindName, ref.Namespace, owners[0].Name)
			current := owner.empty()
			if err := f.client.Get(f.Context(), owner.key(), current); err != nil || owners[0].UID != current.GetUID() {
				f.Errorf("%s is owned by %v, the owner is %s: %v", ref, owners, current.GetUID(), err)
			}

			owners[0].UID = (&Object{Object: o}).GetOwnerReferences()[0].UID
			have.SetOwnerReferences(owners)

			if labels := have.GetLabels(); labels[autoscalingv1alpha1.LabelEffectiveHPAUID] == string(current.GetUID()) && ref.Name == "ehpa-held" {
				labels[autoscalingv1alpha1.LabelEffectiveHPAUID] = "u-held"
				have.SetLabels(labels)
			}
		}

		if a, b := fmt.Sprint(have.Object), fmt.Sprint(o); a != b {
			f.Errorf("%s is\n%s, want\n%s", ref, a, b)
		}
		delete(now, ref)
	}

	delete(now, without)
	for ref := range now {
		f.Errorf("%s is new", ref)
	}
}

func (f *fixture) checkReleased(now map[Ref]map[string]any) {
	f.Helper()

	for name, want := range map[string]struct {
		least int64
		noted string
	}{"held": {7, "2"}, "scheduled": {4, "1"}, "plain": {3, ""}} {
		o := &Object{Object: now[namespacedRef("autoscaling/v2", "HorizontalPodAutoscaler", "shop", "ehpa-"+name)]}
		metrics, _, _ := unstructured.NestedSlice(o.Object, "spec", "metrics")
		if n := int64At(o, "spec", "minReplicas"); n != want.least || o.GetAnnotations()[AnnotationMinReplicas] != want.noted || len(metrics) != 1 || len(o.GetOwnerReferences()) > 0 || o.GetLabels()[labelManagedBy] != "" || o.GetLabels()[autoscalingv1alpha1.LabelEffectiveHPAUID] != "" {
			f.Errorf("HPA of %s: %v", name, o.Object)
		}
	}

	held := &Object{Object: now[namespacedRef("autoscaling/v2", "HorizontalPodAutoscaler", "shop", "ehpa-held")]}
	if held.GetLabels()["team"] != "a" || held.GetAnnotations()[autoscalingv1alpha1.AnnotationAdoptedSpec] != "" || int64At(held, "spec", "maxReplicas") != 9 || int64At(held, "spec", "behavior", "scaleDown", "stabilizationWindowSeconds") != 60 {
		f.Errorf("HPA of held: %v", held.Object)
	}
	if now[namespacedRef("autoscaling/v2", "HorizontalPodAutoscaler", "shop", "ehpa-preview")] != nil || now[namespacedRef("autoscaling/v2", "HorizontalPodAutoscaler", "shop", "own")] == nil {
		f.Error("the HPA of a preview is left, or that of a user is removed")
	}
}

// TestAway_InterruptedAnywhere ends the removal of Crane after each write and continues.
func TestAway_InterruptedAnywhere(t *testing.T) {
	f := newAwayFixture(t)
	if err := f.migration(-1).Run(t.Context(), awayOptions(), nil, true, false); err != nil {
		t.Fatal(err)
	}

	want := f.snapshot()
	g := newAwayFixture(t)
	kills := 0
	for ; ; kills++ {
		err := g.migration(1).Run(t.Context(), awayOptions(), nil, true, false)
		if err == nil {
			break
		}
		if !errors.Is(err, errKilled) || kills > 1000 {
			t.Fatalf("Run after %d kills = %v, want it to end within 1000", kills, err)
		}
	}

	g.compare("killed", want)
	t.Logf("%d kills survived", kills)

	if kills < 50 {
		t.Errorf("%d kills, want 50 or more", kills)
	}
}

// TestCreatedConfigMaps checks that a removal knows each ConfigMap that Crane's roles may write: those of the manifests, and those that its
// processes create.
func TestCreatedConfigMaps(t *testing.T) {
	objects, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		t.Fatal(err)
	}

	shipped := map[string]bool{}
	written := 0

	for _, o := range objects {
		shipped[o.GetKind()+"/"+o.GetName()] = true
	}

	for _, o := range objects {
		for _, rule := range mapsAt(o, "rules") {
			texts := func(field string) (out []string) { out, _, _ = unstructured.NestedStringSlice(rule, field); return out }
			if !slices.Contains(texts("resources"), "configmaps") || !slices.ContainsFunc(texts("verbs"), func(v string) bool { return v == "update" || v == "patch" }) {
				continue
			}

			for _, name := range texts("resourceNames") {
				c := &Object{}
				c.SetKind("ConfigMap")
				c.SetName(name)
				written++

				if !shipped["ConfigMap/"+name] && !createdByCrane(c) {
					t.Errorf("a removal leaves the ConfigMap %s, which %s lets Crane write, want it removed", name, o.GetName())
				}
			}
		}
	}

	if written < 4 {
		t.Errorf("the roles name %d ConfigMaps, want 4 or more", written)
	}
}
