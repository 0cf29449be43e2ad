// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/migrate"
	"crane.io/crane/test/integration/harness"
	"crane.io/crane/test/nightly"
)

// TestSecondCluster exports gocrane from one cluster and imports it into another one, where Crane is installed by its chart with the exported values:
// Crane's webhooks accept every object, its craned reconciles them, and it acts on no EffectiveVerticalPodAutoscaler that gocrane ignored.
func TestSecondCluster(t *testing.T) {
	nightly.Only(t)
	blue := newFixture(t)
	blue.install("yaml", "crane-system", smallSize())

	dir := filepath.Join(t.TempDir(), "export")
	out, errOut, code := blue.crane(blue.control.Kubeconfig(), "migrate", "export", dir, registry)
	if code != 0 || !strings.Contains(out, "is Off in") {
		t.Fatalf("export: exit code %d, want 0: %s%s", code, out, errOut)
	}

	green, c := newLoadedFixture(t)
	green.installation = &installation{namespace: "crane-system", size: smallSize(), owned: map[migrate.Ref]bool{}, uids: map[migrate.Ref]string{}}
	green.installChart(filepath.Join(dir, "values.yaml"))
	green.simulateWith(c)
	green.settle()
	green.eventually("craned serves its webhooks", func(ctx context.Context) error { return green.trusted(ctx) })

	if _, errOut, code := green.crane(green.control.Kubeconfig(), "migrate", "check"); code != 3 {
		t.Errorf("check before the import: exit code %d, want 3: %s", code, errOut)
	}

	// As the tutorial says.
	kubectl, err := harness.FindKubectl(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	apply := exec.CommandContext(t.Context(), kubectl, "apply", "-R", "-f", filepath.Join(dir, "import"), "--kubeconfig", green.control.Kubeconfig())
	if text, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, text)
	}

	green.generateWorkloads(smallSize())
	green.checkImported(filepath.Join(dir, "import", "2-objects"))
	green.checkReconciled()

	if _, errOut, code := green.crane(green.control.Kubeconfig(), "migrate", "check"); code != 3 {
		t.Errorf("check after the import: exit code %d, want 3: %s", code, errOut)
	}
	if _, errOut, code := green.crane(green.control.Kubeconfig(), "migrate", "run", registry, imageTag, "--evpa=off"); code != 1 || !strings.Contains(errOut, "gocrane is not installed") {
		t.Errorf("run without gocrane: exit code %d, want 1: %s", code, errOut)
	}
}

// installChart installs Crane's chart with a file of values.
func (f *fixture) installChart(values string) {
	f.Helper()

	helm, err := harness.FindHelm(f.Context(), f.TempDir())
	if err != nil {
		f.Fatal(err)
	}

	template := exec.CommandContext(f.Context(), helm, "template", "crane", "../../../charts/crane", "--namespace", "crane-system", "--include-crds", "--skip-tests", "--values", values)
	home := f.TempDir()
	template.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)

	template.Stderr = os.Stderr
	text, err := template.Output()
	if err != nil {
		f.Fatal(err)
	}

	objects, err := manifest.ParseString(string(text))
	if err != nil {
		f.Fatal(err)
	}

	nodes := make([]*object, 0, f.installation.size.nodes)
	for i := range f.installation.size.nodes {
		nodes = append(nodes, namespaced("v1", "Node", "", fmt.Sprintf("node-%d", i), map[string]any{"status": map[string]any{
			"conditions": []any{map[string]any{"type": "Ready", "status": "True", "lastHeartbeatTime": nil, "lastTransitionTime": nil}},
		}}))
	}

	f.create("kubelet", false, nodes...)
	f.create("kubectl", false, namespaced("v1", "Namespace", "", "crane-system", nil))

	applier, err := manifest.NewApplier(f.control.Config(), "helm")
	if err == nil {
		err = applier.Apply(f.Context(), objects...)
	}

	if err != nil {
		f.Fatal(err)
	}

	config := f.get("v1", "ConfigMap", "crane-system", "crane-recommendation-configuration")
	if !strings.Contains(field(config, "data", "config.yaml"), "kind: RecommendationConfiguration") {
		f.Errorf("the configuration of recommenders is %v, want a RecommendationConfiguration", config.Object["data"])
	}

	craned := f.get("apps/v1", "Deployment", "crane-system", "craned")
	if args := field(craned, "spec", "template", "spec", "containers"); !strings.Contains(args, "--feature-gates=Analysis=true,TimeSeriesPrediction=true,Autoscaling=true") {
		f.Errorf("craned has %s, want the feature gates of the values", args)
	}
}

// trusted reports webhook configurations without an authority.
func (f *fixture) trusted(ctx context.Context) error {
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		all, err := f.list(ctx, "admissionregistration.k8s.io", "v1", kind)
		if err != nil {
			return err
		}

		for i := range all.Items {
			if webhooks := field(&all.Items[i], "webhooks"); !strings.Contains(webhooks, "caBundle") {
				return fmt.Errorf("%s %s has no authority", kind, all.Items[i].GetName())
			}
		}

		if len(all.Items) == 0 {
			return errors.New("no " + kind)
		}
	}

	return nil
}

// checkImported compares the objects of the cluster with the files.
func (f *fixture) checkImported(dir string) {
	f.Helper()

	counts := map[string]int{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		objects, err := manifest.ParseString(string(text))
		if err != nil {
			return err
		}

		want := objects[0]
		counts[want.GetKind()]++
		now := f.get(want.GetAPIVersion(), want.GetKind(), want.GetNamespace(), want.GetName())

		// The server may add defaults.
		if diff := cmp.Diff(f.json(want.Object["spec"]), f.json(trimmed(now.Object["spec"], want.Object["spec"]))); diff != "" {
			f.Errorf("%s differs (-file +cluster), want no difference:\n%s", migrate.RefOf(want), diff)
		}
		if want.GetKind() == "EffectiveVerticalPodAutoscaler" && field(want, "spec", "updatePolicy", "updateMode") != "Off" {
			f.Errorf("%s acts: %v, want mode Off", migrate.RefOf(want), want.Object["spec"])
		}

		return nil
	})
	if err != nil {
		f.Fatal(err)
	}

	s := f.installation.size
	want := map[string]int{
		"EffectiveHorizontalPodAutoscaler": s.ehpas, "EffectiveVerticalPodAutoscaler": s.evpas, "TimeSeriesPrediction": s.tsps, "RecommendationRule": s.rules,
		"AvoidanceAction": 1, "NodeQOS": 1, "PodQOS": 1, "ClusterNodePrediction": 1,
	}

	if diff := cmp.Diff(want, counts); diff != "" {
		f.Errorf("imported objects (-want +have):\n%s", diff)
	}
}

// json returns a value in JSON, where the types of numbers do not differ.
func (f *fixture) json(v any) string {
	f.Helper()

	text, err := json.Marshal(v)
	if err != nil {
		f.Fatal(err)
	}

	return string(text)
}

// trimmed returns a value without the keys of maps that another value lacks.
func trimmed(v, like any) any {
	switch have := v.(type) {
	case map[string]any:
		want, ok := like.(map[string]any)
		if !ok {
			return v
		}

		out := map[string]any{}
		for key, value := range have {
			if _, ok := want[key]; ok {
				out[key] = trimmed(value, want[key])
			}
		}

		return out

	case []any:
		want, ok := like.([]any)
		if !ok || len(want) != len(have) {
			return v
		}

		out := slices.Clone(have)
		for i := range out {
			out[i] = trimmed(have[i], want[i])
		}

		return out
	}

	return v
}

// checkReconciled waits until craned has made an HPA of each EffectiveHorizontalPodAutoscaler, and checks that it left the templates alone.
func (f *fixture) checkReconciled() {
	f.Helper()

	s := f.installation.size
	f.eventually("each EffectiveHorizontalPodAutoscaler has its HPA", func(ctx context.Context) error {
		hpas, err := f.list(ctx, "autoscaling", "v2", "HorizontalPodAutoscaler")
		if err != nil {
			return err
		}

		if len(hpas.Items) != s.ehpas {
			return fmt.Errorf("%d HPAs of %d", len(hpas.Items), s.ehpas)
		}

		for i := range hpas.Items {
			h := &hpas.Items[i]
			if field(h, "spec", "maxReplicas") != "10" || h.GetLabels()["app.kubernetes.io/managed-by"] != "effective-hpa-controller" || len(h.GetOwnerReferences()) != 1 {
				return fmt.Errorf("HPA %s/%s: %v %v", h.GetNamespace(), h.GetName(), h.Object["spec"], h.GetLabels())
			}
		}

		return nil
	})

	f.eventually("rules are evaluated", func(ctx context.Context) error {
		for i := range s.rules {
			rule := f.get("analysis.crane.io/v1alpha1", "RecommendationRule", "", fmt.Sprintf("rule-%d", i))
			if at := field(rule, "status", "lastUpdateTime"); at == "<nil>" {
				return fmt.Errorf("rule-%d has status %v", i, rule.Object["status"])
			}
		}

		return nil
	})

	for i := range s.workloads {
		namespace, name := s.workload(i)
		w := f.get("apps/v1", "Deployment", namespace, name)
		if got := field(w, "spec", "replicas"); got != "0" {
			f.Errorf("%s/%s has %s replicas, want none", namespace, name, got)
		}
		if template := field(w, "spec", "template"); !strings.Contains(template, "cpu:500m") {
			f.Errorf("%s/%s has the template %s, want cpu:500m", namespace, name, template)
		}
	}
}
