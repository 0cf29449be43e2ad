// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workloadname

import (
	"testing"

	"crane.io/crane/internal/kube/workload"
)

func TestDidYouMean(t *testing.T) {
	candidates := []string{"checkout", "checkout-worker", "cart", "catalog", "frontend"}
	for name, want := range map[string]string{
		"checkot":  "; did you mean checkout?",
		"chekcout": "; did you mean checkout?",
		"frontnd":  "; did you mean frontend?",
		"front":    "; did you mean frontend?",
		"crat":     "; did you mean cart?",
		"check":    "; did you mean checkout or checkout-worker?",
		"xyz":      "",
		"":         "",
	} {
		if got := DidYouMean(name, candidates); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// TestSuggestWorkload checks that a wrong kind or namespace, and a misspelled name, lead to the workload.
func TestSuggestWorkload(t *testing.T) {
	all := []workload.Workload{
		{Ref: workload.Ref{Namespace: "shop", Kind: "Deployment", Name: "checkout"}}, {Ref: workload.Ref{Namespace: "shop", Kind: "CronJob", Name: "mail"}},
	}
	for name, want := range map[string]string{
		"deploymnt/checkout": "; did you mean shop/Deployment/checkout?", "shp/checkout": "; did you mean shop/Deployment/checkout?",
		"shop/chekout": "; did you mean checkout?", "shop/zzz": "",
	} {
		if got := suggestWorkload(name, all); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
