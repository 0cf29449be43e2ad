// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package objectname

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestShorten(t *testing.T) {
	if got := Shorten("cnp-node-1"); got != "cnp-node-1" {
		t.Errorf("Shorten(cnp-node-1) = %s, want it as it is", got)
	}

	seen := map[string]string{}
	for _, name := range []string{
		strings.Repeat("a", 300), strings.Repeat("a", 300) + "b", strings.Repeat("a", 242) + "." + strings.Repeat("b", 60),
		strings.Repeat("a", 241) + "-." + strings.Repeat("b", 60), strings.Repeat("a.", 150),
	} {
		got := Shorten(name)
		if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 {
			t.Errorf("Shorten(%s) = %s, which Kubernetes refuses: %v, want a valid name", name, got, problems)
		}

		if other, ok := seen[got]; ok {
			t.Errorf("Shorten returns %s for %s and for %s, want different names", got, name, other)
		}
		seen[got] = name
	}
}
