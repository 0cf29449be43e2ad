// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
)

// failingKinds resolves kinds, and StatefulSets with an error while there is one.
type failingKinds struct {
	DiscoveryKinds
	err error
}

func (k *failingKinds) Resolve(apiVersion, kind string) ([]schema.GroupVersionKind, error) {
	if kind == "StatefulSet" && k.err != nil {
		return nil, k.err
	}

	return k.DiscoveryKinds.Resolve(apiVersion, kind)
}

// newFixtureWithFailingKind returns a fixture with a Deployment and a StatefulSet, which the rule selects by two selectors.
func newFixtureWithFailingKind(t *testing.T, interval string, err error) (*fixture, *failingKinds) {
	t.Helper()

	rule := testRule(interval)
	rule.Spec.ResourceSelectors = append(rule.Spec.ResourceSelectors, analysisv1alpha1.ResourceSelector{Kind: "StatefulSet"})
	web := deployment("web")
	f := newFixture(t, rule, web, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "db", UID: "u-db"}, Spec: appsv1.StatefulSetSpec{Template: web.Spec.Template},
	})
	kinds := &failingKinds{DiscoveryKinds{Mapper: meta.NewDefaultRESTMapper(nil)}, err}
	f.Kinds = kinds

	return f, kinds
}

// TestSelectorFailsForAWhile checks that a selector that fails with a transient error is retried before the next run is due, without
// evaluating the other targets again.
func TestSelectorFailsForAWhile(t *testing.T) {
	f, kinds := newFixtureWithFailingKind(t, "24h", apierrors.NewServiceUnavailable("the API server is overloaded"))
	for _, wait := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
		if r := f.reconcile(); r.RequeueAfter != wait {
			t.Errorf("retried in %s, want %s", r.RequeueAfter, wait)
		}

		reason, message := f.ready()
		if reason != reasonReadFailed || !strings.Contains(message, "spec.resourceSelectors[1]: the API server is overloaded") {
			t.Errorf("condition Ready is %s: %s, want %s of spec.resourceSelectors[1]", reason, message, reasonReadFailed)
		}

		f.clock.SetTime(f.clock.Now().Add(wait))
	}

	if all := f.all(); len(all) != 1 || all["web"].Name == "" || len(f.source.asked) != 2 {
		t.Errorf("%d questions for %v, want 2 for web alone", len(f.source.asked), all)
	}

	kinds.err = nil
	if r := f.reconcile(); r.RequeueAfter != 24*time.Hour {
		t.Errorf("next run in %s, want 24h", r.RequeueAfter)
	}
	if reason, _ := f.ready(); reason != reasonRoundCompleted || f.rule().Status.RunNumber != 1 || len(f.all()) != 2 {
		t.Errorf("reason %s, run %d with %d recommendations, want %s, run 1 with 2", reason, f.rule().Status.RunNumber, len(f.all()), reasonRoundCompleted)
	}

	for _, asked := range f.source.asked[2:] {
		if fmt.Sprint(asked.Namespaces) != "[bank]" {
			t.Errorf("the source was queried for %v again, want bank alone", asked.Namespaces)
		}
	}
}

// TestSelectorNeverResolves checks that a run ends without a selector that fails for good, or for longer than the interval.
func TestSelectorNeverResolves(t *testing.T) {
	for name, c := range map[string]struct {
		interval string
		err      error
		batches  int
	}{
		"a kind that is not installed":    {"24h", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "StatefulSet"}}, 1},
		"longer than the interval":        {"1m", apierrors.NewServiceUnavailable("overloaded"), 4},
		"until the retries are exhausted": {"24h", apierrors.NewServiceUnavailable("overloaded"), maxSelectorTries},
	} {
		f, _ := newFixtureWithFailingKind(t, c.interval, c.err)
		batches := 0
		for reason := ""; reason != reasonSelectorFailed && batches < 30; batches++ {
			f.clock.SetTime(f.clock.Now().Add(f.reconcile().RequeueAfter))
			reason, _ = f.ready()
		}

		if batches != c.batches || f.rule().Status.RunNumber != 1 || len(f.all()) != 1 {
			t.Errorf("%s: run %d ended after %d batches, want %d; %d recommendations", name, f.rule().Status.RunNumber, batches, c.batches, len(f.all()))
		}
	}
}

// TestIsTransient_Status checks each status code with which the API server refuses a request.
func TestIsTransient_Status(t *testing.T) {
	for code, want := range map[int32]bool{
		http.StatusBadRequest:            false,
		http.StatusUnauthorized:          false,
		http.StatusForbidden:             false,
		http.StatusNotFound:              false,
		http.StatusMethodNotAllowed:      false,
		http.StatusNotAcceptable:         false,
		http.StatusRequestTimeout:        true,
		http.StatusConflict:              true,
		http.StatusGone:                  true,
		http.StatusRequestEntityTooLarge: false,
		http.StatusUnsupportedMediaType:  false,
		http.StatusUnprocessableEntity:   false,
		http.StatusTooManyRequests:       true,
		http.StatusInternalServerError:   true,
		http.StatusBadGateway:            true,
		http.StatusServiceUnavailable:    true,
		http.StatusGatewayTimeout:        true,
	} {
		err := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code}}
		if got := isTransient(err); got != want {
			t.Errorf("isTransient(status %d) = %v, want %v", code, got, want)
		}
	}
}

func TestIsTransient(t *testing.T) {
	kind := schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{apierrors.NewConflict(kind, "web", errors.New("the object has been modified")), true},
		{apierrors.NewServerTimeout(kind, "list", 1), true},
		{apierrors.NewTimeoutError("the request took too long", 1), true},
		{apierrors.NewInternalError(errors.New("etcd")), true},
		{apierrors.NewTooManyRequests("busy", 1), true},
		{apierrors.NewResourceExpired("the continue token is too old"), true},
		{&url.Error{Op: "Get", URL: "https://api", Err: errors.New("connection refused")}, true},
		{&discovery.ErrGroupDiscoveryFailed{}, true},
		{context.DeadlineExceeded, true},
		{apierrors.NewAlreadyExists(kind, "web"), false},
		{apierrors.NewForbidden(kind, "", errors.New("no role")), false},
		{apierrors.NewNotFound(kind, ""), false},
		{apierrors.NewBadRequest("a bad selector"), false},
		{&meta.NoKindMatchError{}, false},
		{errors.New("labelSelector: invalid operator"), false},
		{context.Canceled, false},
		{nil, false},
	} {
		for _, err := range []error{c.err, fmt.Errorf("listing: %w", c.err), errors.Join(errors.New("other"), c.err)} {
			if got := isTransient(err); got != c.want {
				t.Errorf("isTransient(%v) = %v, want %v", err, got, c.want)
			}
		}
	}
}
