// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestpatch

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/recommendation/sizereport"
)

func TestTemplateOf(t *testing.T) {
	spec := `{"containers": [{"name": "app"}, {"name": "b"}], "initContainers": [{"name": "proxy"}]}`
	all := []string{"containers/app", "initContainers/proxy"}
	for name, c := range map[string]struct {
		object       string
		containers   []string
		path, reason string
	}{
		"spec.template":         {`{"spec": {"template": {"spec": ` + spec + `}}}`, all, "spec.template.spec", ""},
		"job template":          {`{"spec": {"jobTemplate": {"spec": {"template": {"spec": ` + spec + `}}}}}`, all, "spec.jobTemplate.spec.template.spec", ""},
		"unknown path":          {`{"spec": {"pods": {"spec": ` + spec + `}}}`, all, "", "Rollout argoproj.io/v1alpha1 has no pod template at"},
		"workloadRef":           {`{"spec": {"workloadRef": {"kind": "Deployment", "name": "web"}}}`, all, "", "template of Deployment/web (spec.workloadRef)"},
		"empty object":          {`{}`, all, "", "has no pod template"},
		"missing container":     {`{"spec": {"template": {"spec": ` + spec + `}}}`, []string{"containers/mesh"}, "", "no containers/mesh"},
		"wrong list":            {`{"spec": {"template": {"spec": ` + spec + `}}}`, []string{"initContainers/app"}, "", "no initContainers/app"},
		"string as template":    {`{"spec": {"template": "spec"}}`, all, "", "has no pod template"},
		"strings as containers": {`{"spec": {"template": {"spec": {"containers": ["app"]}}}}`, all, "", "has no pod template"},
		"map of containers":     {`{"spec": {"template": {"spec": {"containers": {"app": {}}}}}}`, all, "", "has no pod template"},
		"number as name":        {`{"spec": {"template": {"spec": {"containers": [{"name": 1}]}}}}`, all, "", "has no pod template"},
		"no container list":     {`{"spec": {"template": {"spec": {}}}}`, all, "", "has no pod template"},
	} {
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(c.object), &object.Object); err != nil {
			t.Fatal(err)
		}

		object.SetAPIVersion("argoproj.io/v1alpha1")
		object.SetKind("Rollout")

		got := templateOf(object, c.containers)
		if strings.Join(got.Path, ".") != c.path || !strings.Contains(got.UnknownReason, c.reason) || (got.UnknownReason == "") != (c.reason == "") {
			t.Errorf("%s: templateOf = %+v, want path %q, reason %q", name, got, c.path, c.reason)
		}
	}
}

// TestCustomKind checks that custom kinds are patched by JSON operations only, because a merge would replace their
// list of containers.
func TestCustomKind(t *testing.T) {
	r := patchFixtureReport(t)
	r.Items[0].Workload.APIVersion, r.Items[0].Workload.Kind = "argoproj.io/v1alpha1", "Rollout"
	r.Items[0].Template = sizereport.PodTemplate{Path: []string{"spec", "template", "spec"}}

	var component struct {
		Patches []struct {
			Target patchTarget
			Patch  string
		}
	}

	if err := yaml.Unmarshal([]byte(renderPatches(t, Kustomize, r)), &component); err != nil || len(component.Patches) != 1 {
		t.Fatalf("kustomization = %+v, %v, want 1 patch", component, err)
	}

	if target := component.Patches[0].Target; target.Group != "argoproj.io" || target.Kind != "Rollout" {
		t.Errorf("target = %+v, want the Rollout of argoproj.io", target)
	}

	operations, err := yaml.YAMLToJSON([]byte(component.Patches[0].Patch))
	if err != nil {
		t.Fatal(err)
	}

	p, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}

	patched, err := p.Apply(mustMarshal(t, fixtureDeployment()))
	if err != nil {
		t.Fatal(err)
	}

	checkPatched(t, patched)

	var out, errOut bytes.Buffer
	if err := WriteStrategicMerge(&out, &errOut, r); err != nil || out.Len() > 0 || !strings.Contains(errOut.String(), "replaces the whole list of containers") {
		t.Errorf("WriteStrategicMerge of a Rollout = %v, want no output and the reason\n%s\n%s", err, out.String(), errOut.String())
	}

	r.Items[0].Template = sizereport.PodTemplate{}
	if out := renderPatches(t, HelmValues, r); !strings.Contains(out, "Rollout:") {
		t.Errorf("Helm values lack the workload without a known template, want it in\n%s", out)
	}
	if patches, skipped := patchesOf(r, false); len(patches) > 0 || !slices.ContainsFunc(skipped, func(l string) bool { return strings.Contains(l, "is unknown") }) {
		t.Errorf("patchesOf an unread object = %v, skipped %q, want none and an unknown template", patches, skipped)
	}
}
