// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// FuzzParseValue: whatever stands in a status or an annotation is read or refused, and what is read holds quantities
// with a sign and a size that can be written again.
func FuzzParseValue(f *testing.F) {
	for _, seed := range []string{
		"", "resourceRequest:\n  containers:\n  - containerName: app\n    target:\n      cpu: 900m\n      memory: 345Mi\n",
		"replicasRecommendation:\n  replicas: 3\n", "{", "resourceRequest: {containers: [{target: {cpu: 1e400}}]}", "&a [*a]",
	} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		values, err := parseValue(text)
		if err != nil && values.containers != nil {
			t.Errorf("parseValue(%q) returned values beside an error, want none", text)
		}

		for container, list := range values.containers {
			for name, q := range list {
				if q.String() == "" {
					t.Errorf("parseValue(%q): %s of %s has no text, want a quantity", text, name, container)
				}
			}
		}
	})
}

// FuzzLabelValue: a name that is valid for an object leads to a valid label, and short names stay as they are.
func FuzzLabelValue(f *testing.F) {
	f.Add("web")
	f.Add("a.b-c.d-e.f-g.h-i.j-k.l-m.n-o.p-q.r-s.t-u.v-w.x-y.z-0.1-2.3-4.5")
	f.Fuzz(func(t *testing.T, name string) {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Skip("not a name")
		}

		label := labelValue(name)
		if errs := validation.IsValidLabelValue(label); len(errs) > 0 {
			t.Errorf("labelValue(%q) = %q, want a valid value: %v", name, label, errs)
		}
		if len(name) <= validation.LabelValueMaxLength && label != name {
			t.Errorf("labelValue(%q) = %q, want it unchanged", name, label)
		}
	})
}
