// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package foreignvpa

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/adoption/targetindex"
)

func TestParse(t *testing.T) {
	const target = "targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}\n"
	for name, c := range map[string]struct {
		spec string
		acts bool
	}{
		"default":             {target, true},
		"Initial":             {target + "updatePolicy: {updateMode: Initial}", true},
		"InPlaceOrRecreate":   {target + "updatePolicy: {updateMode: InPlaceOrRecreate}", true},
		"Off":                 {target + `updatePolicy: {updateMode: "Off"}`, false},
		"all containers off":  {target + `resourcePolicy: {containerPolicies: [{containerName: "*", mode: "Off"}]}`, false},
		"one container off":   {target + `resourcePolicy: {containerPolicies: [{containerName: proxy, mode: "Off"}]}`, true},
		"one container alone": {target + `resourcePolicy: {containerPolicies: [{containerName: "*", mode: "Off"}, {containerName: app}]}`, true},
		"no target":           {"updatePolicy: {updateMode: Auto}", false},
		"nonsense":            {"targetRef: 7", false},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		spec := map[string]any{}
		if err := yaml.Unmarshal([]byte(c.spec), &spec); err != nil {
			t.Fatal(err)
		}
		o.Object["spec"] = spec
		o.SetNamespace("shop")

		got := Parse(o)
		if got.Acts != c.acts || c.acts && got.Target != (targetindex.Key{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}) {
			t.Errorf("%s: Parse = %+v, want that it acts on Deployment shop/web: %t", name, got, c.acts)
		}
	}
}
