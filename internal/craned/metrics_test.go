// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestRequestsBeforeAuthentication checks that requests beyond the bound are refused before they reach the API server, and permitted once others
// have ended.
func TestRequestsBeforeAuthentication(t *testing.T) {
	const bound = 3
	arrived, answer := make(chan struct{}), make(chan struct{})
	handler := limitRequests(bound, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-answer
	}))
	get := func() int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
		return w.Code
	}
	statuses := make(chan int, bound)
	for range bound {
		go func() { statuses <- get() }()
		<-arrived
	}
	if got := get(); got != http.StatusServiceUnavailable {
		t.Errorf("status %d beyond the bound", got)
	}
	close(answer)
	for range bound {
		if got := <-statuses; got != http.StatusOK {
			t.Errorf("status %d", got)
		}
	}
	go func() { <-arrived }()
	if got := get(); got != http.StatusOK {
		t.Errorf("status %d after the others", got)
	}
}
