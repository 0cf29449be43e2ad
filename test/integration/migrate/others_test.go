// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/migrate"
	"crane.io/crane/test/integration/harness"
)

// otherKinds are the definitions of other projects, without their schemas, so that hostile objects are stored as well.
const otherKinds = `
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: verticalpodautoscalers.autoscaling.k8s.io, annotations: {api-approved.kubernetes.io: 'https://github.com/kubernetes/kubernetes/pull/63797'}}, spec: {group: autoscaling.k8s.io, scope: Namespaced, names: {kind: VerticalPodAutoscaler, plural: verticalpodautoscalers}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: scaledobjects.keda.sh}, spec: {group: keda.sh, scope: Namespaced, names: {kind: ScaledObject, plural: scaledobjects}, versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
`

//go:embed testdata/other-objects.yaml
var otherObjects string

// TestCheck_OtherAutoscalers checks the importers with realistic and hostile objects: each is listed, what has no counterpart is named with a reason, and the API
// server accepts each manifest that an importer writes.
func TestCheck_OtherAutoscalers(t *testing.T) {
	f := newFixture(t)
	if err := harness.Install(t.Context(), f.control.Config(), "test", func(kind string) bool { return kind == "CustomResourceDefinition" }); err != nil {
		t.Fatal(err)
	}

	definitions, err := manifest.ParseString(otherKinds)
	if err != nil {
		t.Fatal(err)
	}

	f.installation = &installation{owned: map[migrate.Ref]bool{}, uids: map[migrate.Ref]string{}}
	f.create("kubectl", false, definitions...)
	f.awaitServed(definitions[1:])
	vpas := definitions[0]
	list := namespaced("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", "default", "x", nil)
	f.eventually(vpas.GetName()+" is served", func(ctx context.Context) error {
		return client.IgnoreNotFound(f.client.Get(ctx, client.ObjectKeyFromObject(list), list))
	})

	objects, err := manifest.ParseString(otherObjects)
	if err != nil {
		t.Fatal(err)
	}

	for _, o := range objects {
		if err := f.client.Create(t.Context(), o); err != nil {
			t.Fatalf("creating %s: %v", migrate.RefOf(o), err)
		}
	}

	f.grant("reader", []string{"get", "list"}, "*")
	out, errOut, _ := f.crane(f.user("reader"), "migrate", "check", "-o", "json")
	var report migrate.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("parsing the report of the check: %v: %s", err, errOut)
	}

	found := map[string]migrate.Import{}
	for _, i := range report.Imports {
		found[i.Source+" "+i.Object] = i
	}

	for name, want := range map[string]struct {
		to       string
		manifest []string
		unmapped []string
	}{
		"VerticalPodAutoscaler VerticalPodAutoscaler shop/full": {
			"EffectiveVerticalPodAutoscaler",
			[]string{"updateMode: Auto", "containerName: main", "memory: 8Gi", "RequestsOnly", "scaleUpPolicy"},
			[]string{"containerPolicies.oomBumpUpRatio (Crane raises memory", "recommenders (Crane has estimators", "updatePolicy.minReplicas (the budgets"},
		},
		"VerticalPodAutoscaler VerticalPodAutoscaler shop/plain":        {"EffectiveVerticalPodAutoscaler", []string{"updateMode: Auto", "kind: StatefulSet"}, nil},
		"VerticalPodAutoscaler VerticalPodAutoscaler shop/unknown-mode": {"EffectiveVerticalPodAutoscaler", []string{`updateMode: "Off"`}, []string{"updatePolicy.updateMode Sometimes (not known"}},
		"VerticalPodAutoscaler VerticalPodAutoscaler shop/no-target":    {"", nil, []string{"targetRef (it names no target)"}},
		"VerticalPodAutoscaler VerticalPodAutoscaler shop/hostile":      {"EffectiveVerticalPodAutoscaler", []string{"updateMode: Auto"}, nil},
		"Goldilocks Namespace shop":                                     {"RecommendationRule", []string{"- shop", "name: shop-resources"}, []string{"label goldilocks.fairwinds.com/other (not known to Crane)", "label goldilocks.fairwinds.com/vpa-update-mode (a rule recommends"}},
		"KEDA ScaledObject shop/office": {
			"EffectiveHorizontalPodAutoscaler",
			[]string{"name: cron-1", "name: cron-3", "timezone: Europe/Berlin", "targetReplicas: 10", "maxReplicas: 20", "stabilizationWindowSeconds: 120"},
			[]string{"cooldownPeriod (of KEDA", "fallback (where a metric", "minReplicaCount 0 (Crane does not scale to zero)", "trigger prometheus (add it to metrics"},
		},
		"KEDA ScaledObject shop/queue": {"", nil, []string{"trigger kafka (add it to metrics"}},
		"KEDA ScaledObject shop/hostile": {"", nil, []string{
			"scaleTargetRef (it names no target)", `trigger cron 1 (unknown time zone Mars/Phobos)`, "trigger cron 2 (", `trigger cron 3 (strconv.ParseInt: parsing "5x"`, "trigger cron 4 (targetReplicas -3", "trigger cron 5 (",
		}},
		"prometheus-adapter ConfigMap shop/prometheus-adapter": {"metricAdapter.rules and .externalRules of the chart: 1 rules in config.yaml", nil, []string{"resourceRules (the metrics API"}},
		"prometheus-adapter ConfigMap shop/broken-adapter":     {"", nil, []string{`config.yaml (rules[0]: seriesQuery "a{"`}},
		"prometheus-adapter ConfigMap shop/no-yaml":            {"", nil, []string{"config.yaml ("}},
	} {
		i, ok := found[name]
		delete(found, name)

		if !ok || i.To != want.to || (i.Manifest == "") != (want.manifest == nil) || len(i.Unmapped) != len(want.unmapped) {
			t.Errorf("%s: %+v, want %+v", name, i, want)
			continue
		}

		for n, text := range want.unmapped {
			if !strings.HasPrefix(i.Unmapped[n], text) {
				t.Errorf("%s: %q, want %q", name, i.Unmapped[n], text)
			}
		}

		for _, text := range want.manifest {
			if !strings.Contains(i.Manifest, text) {
				t.Errorf("the manifest of %s lacks text, want %q:\n%s", name, text, i.Manifest)
			}
		}

		f.acceptsManifest(name, i.Manifest)
	}

	for name, i := range found {
		t.Errorf("item %s is %+v, want only the listed ones", name, i)
	}

	text, _, _ := f.crane(f.control.Kubeconfig(), "migrate", "check")
	if !strings.Contains(text, "KEDA ScaledObject shop/queue -> nothing; without counterpart: trigger kafka") {
		t.Errorf("table: %s, want the trigger without a counterpart", text)
	}
}

// acceptsManifest checks that the API server accepts a manifest.
func (f *fixture) acceptsManifest(name, text string) {
	f.Helper()

	objects, err := manifest.ParseString(text)
	if err != nil {
		f.Errorf("parsing the manifest of %s: %v", name, err)
	}

	for _, o := range objects {
		if err := client.NewDryRunClient(f.client).Create(f.Context(), o); err != nil {
			f.Errorf("%s: the API server refuses the manifest: %v\n%s", name, err, text)
		}
	}
}
