// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

// TestNodesWithQuotas checks that a migration names the nodes on which gocrane's agent may have left CPU quotas, that an undo removes the record, whoever
// has set it, and that a removal of Crane warns of it.
func TestNodesWithQuotas(t *testing.T) {
	f := newFixture(t)
	tainted := (Ref{APIVersion: "v1", Kind: "Node"}).empty() // without marks of the agent
	tainted.SetName("n2")
	_ = unstructured.SetNestedSlice(tainted.Object, []any{map[string]any{"key": taintKey, "effect": "PreferNoSchedule"}}, "spec", "taints")
	_ = unstructured.SetNestedField(tainted.Object, "4", "status", "capacity", "cpu")

	if err := f.client.Create(t.Context(), tainted); err != nil {
		t.Fatal(err)
	}

	check := func(want ...string) {
		t.Helper()

		if got, err := NodesWithQuotas(t.Context(), f.client); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}

	before := f.snapshot()
	if err := f.migration(-1).Run(t.Context(), testOptions(), nil, true, false); err != nil {
		t.Fatal(err)
	}

	check("n1")
	if err := f.client.Get(t.Context(), RefOf(tainted).key(), tainted); err != nil {
		t.Fatal(err)
	}

	tainted.SetAnnotations(map[string]string{ensurancev1alpha1.AnnotationPredecessor: ensurancev1alpha1.PredecessorGocrane}) // as crane-agent does
	if err := f.client.Update(t.Context(), tainted); err != nil {
		t.Fatal(err)
	}

	check("n1", "n2")
	if err := f.migration(-1).Undo(t.Context()); err != nil {
		t.Fatal(err)
	}

	check()
	f.compare("undo", before)

	away := newAwayFixture(t)
	o := awayOptions()
	plan, err := away.migration(-1).Plan(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}

	if !slices.ContainsFunc(plan.Findings, func(f Finding) bool {
		return f.Reason == "QuotasOfGocrane" && slices.Equal(f.Objects, []string{"Node n1"})
	}) {
		t.Errorf("findings %+v, want QuotasOfGocrane of Node n1", plan.Findings)
	}
}
