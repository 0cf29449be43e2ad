// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenlimit

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// fixture counts the reviews of a server that accepts tokens which begin with "good".
type fixture struct {
	handler http.Handler
	clock   *clocktesting.FakeClock
	reviews int
}

func setup() *fixture {
	f := &fixture{clock: clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))}
	f.handler = Handler(f.clock, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.reviews++
		if token := r.Header.Get("Authorization"); len(token) < 11 || token[:11] != "Bearer good" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}), PlainError)

	return f
}

func (f *fixture) get(t *testing.T, source, token string) int {
	t.Helper()

	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	r.RemoteAddr = source
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}

	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	return w.Code
}

// TestUnknownTokens checks that a flood of one source and of many is bounded, while known tokens and the new token of another source are served.
func TestUnknownTokens(t *testing.T) {
	f := setup()
	f.get(t, "10.0.0.1:1", "good-known")

	for i := range 1000 {
		f.get(t, "10.0.0.2:1", fmt.Sprint("bad", i))
	}

	if want := sourceBurst + 1; f.reviews != want {
		t.Errorf("1000 tokens of one source cost %d reviews, want %d", f.reviews-1, want-1)
	}
	if got := f.get(t, "10.0.0.3:1", "good-new"); got != http.StatusOK {
		t.Errorf("a new token of another source beside a flood: status %d, want %d", got, http.StatusOK)
	}

	f.reviews = 0
	for i := range 1000 {
		f.get(t, fmt.Sprintf("10.1.%d.%d:1", i/256, i%256), fmt.Sprint("worse", i))
	}

	if f.reviews > burst {
		t.Errorf("1000 tokens of 1000 sources cost %d reviews, want at most %d", f.reviews, burst)
	}
	if got := f.get(t, "10.0.0.1:1", "good-known"); got != http.StatusOK {
		t.Errorf("a known token beside a flood: status %d, want %d", got, http.StatusOK)
	}

	f.clock.Step(time.Second)
	if got := f.get(t, "10.0.0.4:1", "good-later"); got != http.StatusOK {
		t.Errorf("a new token a second after the flood: status %d, want %d", got, http.StatusOK)
	}
}

// TestRefusedTokens checks that a refused token costs one review in half a minute, and an accepted one is not refused later by mistake.
func TestRefusedTokens(t *testing.T) {
	f := setup()
	for range 100 {
		if got := f.get(t, "10.0.0.1:1", "bad"); got != http.StatusUnauthorized {
			t.Fatalf("a refused token: status %d, want %d", got, http.StatusUnauthorized)
		}
	}

	if f.reviews != 1 {
		t.Errorf("100 requests with a refused token cost %d reviews, want 1", f.reviews)
	}

	f.clock.Step(refusedTTL + time.Second)
	f.get(t, "10.0.0.1:1", "bad")
	if f.reviews != 2 {
		t.Errorf("a refused token costs %d reviews after %s, want 2", f.reviews, refusedTTL)
	}

	if got := f.get(t, "10.0.0.1:1", ""); got != http.StatusUnauthorized {
		t.Errorf("no token: status %d, want that of the handler, %d", got, http.StatusUnauthorized)
	}
}

// TestSourceOf checks that all addresses of an IPv6 network are one source.
func TestSourceOf(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1", "[2001:db8::1]:80": "2001:db8::", "[2001:db8:0:0:ffff::9]:1": "2001:db8::", "[2001:db8:0:1::]:1": "2001:db8:0:1::", "pipe": "pipe",
	} {
		if got := sourceOf(&http.Request{RemoteAddr: address}); got != want {
			t.Errorf("source of %s = %q, want %q", address, got, want)
		}
	}
}
