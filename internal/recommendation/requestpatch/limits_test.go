// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package requestpatch

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/kube/podlimits"
)

// TestRefusal: each format says where a rule of the namespace would refuse the pods of a patch, and nothing where none would.
func TestRefusal(t *testing.T) {
	for name, c := range map[string]struct{ least, want string }{
		"allowed": {"512Mi", ""},
		"refused": {"1Gi", "its pods would be refused: LimitRange limits: the pod has a limit of memory 512Mi, and 1Gi is the minimum"},
	} {
		least := corev1.ResourceList{corev1.ResourceMemory: apiresource.MustParse(c.least)}
		rules := podlimits.Rules{LimitRanges: []corev1.LimitRange{{
			ObjectMeta: metav1.ObjectMeta{Name: "limits"},
			Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypePod, Min: least}}},
		}}}

		r := patchFixtureReport(t)
		for i := range r.Items {
			r.Items[i].Refusal = refusalOf(rules, &r.Items[i])
		}

		for _, format := range Formats() {
			var out, notes strings.Builder
			if err := rendererOf(format)(&out, &notes, r); err != nil {
				t.Fatal(err)
			}

			text := out.String()
			if format == JSONPatch {
				text = notes.String()
			}
			if got := strings.Contains(text, "Warning: "); got != (c.want != "") || !strings.Contains(text, c.want) {
				t.Errorf("%s, %s: a warning: %t, want %q:\n%s", name, format, got, c.want, text)
			}
		}
	}
}
