// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/component/recovery"
	"crane.io/crane/internal/dashboard/contract"
)

// TestPanicOfASharedRead checks that a panic of a read, which has a goroutine of its own, is the error of its callers, that it is logged, and
// that the next caller reads again.
func TestPanicOfASharedRead(t *testing.T) {
	reads := 0
	s := &Shared[int]{
		Read: func(context.Context) (*int, error) {
			reads++
			if reads == 1 {
				var none []int
				return &none[reads], nil
			}

			return &reads, nil
		},
		TTL:      time.Minute,
		Timeout:  time.Minute,
		Patience: time.Minute,
		Clock:    clock.RealClock{},
	}

	var panicked *recovery.PanicError
	if _, _, _, err := s.Get(t.Context()); !errors.As(err, &panicked) {
		t.Errorf("Get with a read that panics = %v, want a *recovery.PanicError", err)
	}

	value, _, stale, err := s.Get(t.Context())
	if err != nil || stale != "" || *value != 2 {
		t.Errorf("Get after a read that panicked = %v, stale %q, %v, want the second read", value, stale, err)
	}
}

// TestPanicOfARequest checks that a request whose handler panics is answered with 500 and a reason, that its slot is free again, and that
// the server goes on.
func TestPanicOfARequest(t *testing.T) {
	f := setup(t)
	f.login(t)

	f.prod.wait = func() {
		var none map[string][]int
		none["x"][0]++
	}

	for range maxConcurrent + 1 {
		w := f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, "")
		if w.Code != http.StatusInternalServerError || reasonOf(t, w) != contract.ReasonInternal || strings.Contains(w.Body.String(), "nil map") {
			t.Fatalf("GET worklist of a backend that panics: status %d, %s, want 500 with a reason and without the panic", w.Code, w.Body)
		}
	}

	f.prod.wait = nil
	if w := f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, ""); w.Code != http.StatusOK {
		t.Errorf("GET worklist after the panics: status %d, want 200", w.Code)
	}
}

// TestPanicOfAReview checks that a panic in a review of one namespace, of which many run at the same time, is the error of the request.
func TestPanicOfAReview(t *testing.T) {
	f := setupCluster(t, "ann list recommendations shop")
	broken := &Reviews{client: nil, clock: f.clock, persons: f.reviews.persons, unknown: f.reviews.unknown}
	person := WithPerson(t.Context(), Person{Name: "ann", Token: "ann"})

	// The right in all namespaces is known, those in single ones are asked for.
	if _, err := f.reviews.Identify(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}

	if _, err := f.reviews.Allowed(person, listRecommendations("")); err != nil {
		t.Fatal(err)
	}

	var panicked *recovery.PanicError
	if _, _, err := broken.allowedIn(person, listRecommendations(""), []string{"shop", "pay"}); !errors.As(err, &panicked) {
		t.Errorf("allowedIn with a client that panics = %v, want a *recovery.PanicError", err)
	}
}
