// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"unicode/utf8"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

func TestFormatChange(t *testing.T) {
	pod := func(containers ...string) string {
		return `{"spec":{"template":{"spec":{"containers":[` + strings.Join(containers, ",") + `]}}}}`
	}

	size := func(name, requests string) string {
		return `{"name":"` + name + `","resources":{"requests":{` + requests + `}}}`
	}
	for name, c := range map[string]struct {
		current, recommended string
		action               analysisv1alpha1.Action
		want                 string
	}{
		"one container": {
			pod(size("app", `"cpu":"1","memory":"1136Mi"`)), pod(size("app", `"cpu":"778m","memory":"512Mi"`)), "Patch",
			"cpu 1 → 778m, memory 1136Mi → 512Mi",
		},
		"containers are summed": {
			pod(size("app", `"cpu":"1"`), size("log", `"cpu":"100m"`)), pod(size("app", `"cpu":"500m"`), size("log", `"cpu":"50m"`)), "Patch",
			"cpu 1100m → 550m",
		},
		"without a current request": {pod(size("app", ``)), pod(size("app", `"cpu":"50m"`)), "Patch", "cpu none → 50m"},
		"limits":                    {pod(size("app", `"cpu":"1"`)), pod(size("app", `"cpu":"1"`)), "Patch", "limits only"},
		"replicas":                  {`{"spec":{"replicas":4}}`, `{"spec":{"replicas":3}}`, "Patch", "replicas 4 → 3"},
		"object":                    {"", `{"kind":"EffectiveHorizontalPodAutoscaler","spec":{"minReplicas":2}}`, "Create", "create EffectiveHorizontalPodAutoscaler"},
		"delete":                    {"", "", "Delete", "delete"},
		"nothing":                   {"", "", "", ""},
		"long": {
			pod(size("app", `"cpu":"1234567890123m","memory":"12345678901"`)), pod(size("app", `"cpu":"2234567890123m","memory":"22345678901"`)), "Patch",
			"cpu 1234567890123m → 2234567890123m, memory 12345678901 → 2…",
		},
	} {
		got := formatChange(analysisv1alpha1.RecommendationContent{CurrentInfo: c.current, RecommendedInfo: c.recommended, Action: c.action})
		if got != c.want || utf8.RuneCountInString(got) > maxChange {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
