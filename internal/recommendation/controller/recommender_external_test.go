// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/recommend"
)

// scripted is an external evaluation that records its observations.
type scripted struct {
	needs    recommend.Needs
	answer   recommend.Recommendation
	err      error
	observed *[]recommend.Observation
}

func (s scripted) Prepare() recommend.Needs { return s.needs }

func (s scripted) Recommend(o recommend.Observation) (recommend.Recommendation, error) {
	*s.observed = append(*s.observed, o)
	return s.answer, s.err
}

// newScripted returns a recommender Mine that always gives the same answer.
func newScripted(needs recommend.Needs, answer recommend.Recommendation, err error) (recommend.Recommender, *[]recommend.Observation) {
	observed := &[]recommend.Observation{}

	return recommend.Recommender{Name: "Mine", Configure: func(settings map[string]string) (recommend.Evaluation, error) {
		for key := range settings {
			return nil, fmt.Errorf("unknown setting %q", key)
		}

		return scripted{needs, answer, err, observed}, nil
	}}, observed
}

// runMine runs a rule with the recommender Mine for the Deployment web, and returns its Recommendation.
func runMine(t *testing.T, r recommend.Recommender) (*fixture, analysisv1alpha1.Recommendation) {
	t.Helper()

	registry, err := NewRegistry(r)
	if err != nil {
		t.Fatal(err)
	}

	rule := testRule("24h")
	rule.Spec.Recommenders = []analysisv1alpha1.Recommender{{Name: "Mine"}}
	f := newFixture(t, deployment("web"), rule)
	f.Settings = registry.DefaultSettings
	f.settle()

	return f, f.all()["web"]
}

func patchOf(replicas int) map[string]any {
	return map[string]any{"spec": map[string]any{"replicas": replicas}}
}

func TestExternalRecommender_Proposal(t *testing.T) {
	r, observed := newScripted(recommend.Needs{Usage: 7 * 24 * time.Hour, Totals: true}, recommend.Recommendation{
		Plan:    recommend.Plan{State: recommend.Ready, Action: recommend.Patch, Description: "Three are enough."},
		Current: patchOf(5), Recommended: patchOf(3), Value: map[string]int{"replicas": 3},
	}, nil)

	_, rec := runMine(t, r)
	if rec.Spec.Type != "Mine" || rec.Status.Action != "Patch" || rec.Status.Description != "Three are enough." {
		t.Errorf("Recommendation of type %s proposes %s: %q, want Mine, Patch, Three are enough.", rec.Spec.Type, rec.Status.Action, rec.Status.Description)
	}
	if got, want := rec.Status.RecommendedInfo, `{"spec":{"replicas":3}}`; got != want {
		t.Errorf("recommendedInfo = %s, want %s", got, want)
	}
	if got, want := rec.Status.CurrentInfo, `{"spec":{"replicas":5}}`; got != want {
		t.Errorf("currentInfo = %s, want %s", got, want)
	}

	if got, want := rec.Status.RecommendedValue, "replicas: 3\n"; got != want {
		t.Errorf("recommendedValue = %q, want %q", got, want)
	}

	if len(*observed) != 1 {
		t.Fatalf("Recommend was called %d times, want once", len(*observed))
	}

	o := (*observed)[0]
	if o.Target.Kind != "Deployment" || o.Target.Namespace != "shop" || o.Target.Name != "web" || o.Target.Labels["app"] != "web" {
		t.Errorf("observed target %+v, want Deployment shop/web with its labels", o.Target)
	}
	if len(o.Target.Containers) != 1 || *o.Target.Containers[0].Current.CPURequest != 2000 || len(o.Target.Containers[0].Usage.Days()) < 7 {
		t.Errorf("observed containers %+v, want app with a request of 2 cores and a week of usage", o.Target.Containers)
	}
	if len(o.CPU.Values) == 0 || len(o.Memory.Values) == 0 {
		t.Errorf("observed %d values of CPU and %d of memory, want the totals of the pods", len(o.CPU.Values), len(o.Memory.Values))
	}
}

func TestExternalRecommender_WithoutHistory(t *testing.T) {
	r, observed := newScripted(recommend.Needs{}, recommend.Recommendation{Plan: recommend.Plan{State: recommend.Ready, Action: recommend.NoAction}}, nil)

	f, _ := runMine(t, r)
	if len(*observed) != 1 || (*observed)[0].Target.Containers[0].Usage != nil {
		t.Errorf("observed %+v, want one target without usage", *observed)
	}
	if len(f.source.asked) != 0 {
		t.Errorf("%d queries were sent for a recommender that needs no history, want 0", len(f.source.asked))
	}
}

func TestExternalRecommender_Failures(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer recommend.Recommendation
		err    error
		want   string
	}{
		{"error", recommend.Recommendation{}, errors.New("no price for GPUs"), "no price for GPUs"},
		{"unknown state", recommend.Recommendation{Plan: recommend.Plan{State: "Done"}}, nil, `unknown state "Done"`},
		{"value that JSON cannot hold", recommend.Recommendation{
			Plan: recommend.Plan{State: recommend.Ready, Action: recommend.Patch}, Current: 1, Recommended: func() {},
		}, nil, "encoding the recommended state"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := newScripted(recommend.Needs{}, c.answer, c.err)
			f, rec := runMine(t, r)
			if rec.Status.RecommendedInfo != "" || rec.Status.Action != "" {
				t.Errorf("a failed evaluation proposes %s %s, want nothing", rec.Status.Action, rec.Status.RecommendedInfo)
			}
			if _, message := f.ready(); !strings.Contains(message+rec.Status.Description, c.want) {
				t.Errorf("rule says %q and Recommendation %q, want %q", message, rec.Status.Description, c.want)
			}
		})
	}
}

func TestRegistry_Names(t *testing.T) {
	mine, _ := newScripted(recommend.Needs{}, recommend.Recommendation{}, nil)
	builtin := mine
	builtin.Name = "Resource"

	for _, c := range []struct {
		name       string
		additional []recommend.Recommender
		want       string
	}{
		{"twice", []recommend.Recommender{mine, mine}, "another recommender has this name"},
		{"as a built-in one", []recommend.Recommender{builtin}, "another recommender has this name"},
		{"none", []recommend.Recommender{{}}, "CamelCase"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := NewRegistry(c.additional...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("NewRegistry returned error %v, want %q", err, c.want)
			}
		})
	}
}

// TestRegistry_ParseSettings checks that a configuration file may restrict an external recommender and need not name it.
func TestRegistry_ParseSettings(t *testing.T) {
	mine, _ := newScripted(recommend.Needs{}, recommend.Recommendation{}, nil)
	registry, err := NewRegistry(mine)
	if err != nil {
		t.Fatal(err)
	}

	const head = "apiVersion: analysis.crane.io/v1alpha1\nkind: RecommendationConfiguration\nrecommenders:\n"
	job := workload.Workload{Ref: workload.Ref{Kind: "Deployment", APIVersion: "apps/v1", Namespace: "shop", Name: "web"}}
	for _, c := range []struct {
		name, file string
		want       bool
	}{
		{"not listed", "- name: Resource\n", true},
		{"listed for StatefulSets", "- name: Mine\n  acceptedResources:\n  - {kind: StatefulSet, apiVersion: apps/v1}\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			settings, err := registry.ParseSettings([]byte(head + c.file))
			if err != nil {
				t.Fatal(err)
			}

			configured, err := settings.configure(analysisv1alpha1.Recommender{Name: "Mine"})
			if err != nil {
				t.Fatal(err)
			}

			if got := configured.accepts(job); got != c.want {
				t.Errorf("Mine accepts a Deployment: %t, want %t", got, c.want)
			}
		})
	}
}

// TestExternalRecommender_ImpossibleNeeds checks that totals without a history are an error of the rule, not a panic of craned.
func TestExternalRecommender_ImpossibleNeeds(t *testing.T) {
	for _, needs := range []recommend.Needs{{Totals: true}, {Usage: -time.Hour}} {
		r, observed := newScripted(needs, recommend.Recommendation{}, nil)
		f, _ := runMine(t, r)
		if _, message := f.ready(); !strings.Contains(message, "cannot be read") || len(*observed) != 0 {
			t.Errorf("needs %+v: rule says %q after %d observations, want an error and none", needs, message, len(*observed))
		}
	}
}
