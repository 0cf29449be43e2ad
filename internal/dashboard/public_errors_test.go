// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/metrics"
)

// TestErrorsArePublic checks that neither an error nor the reason of a stale value names a server that only administrators may know.
func TestErrorsArePublic(t *testing.T) {
	const address = "prometheus.monitoring:9090"
	err := fmt.Errorf("reading: %w", metrics.WithPublicMessage(errors.New("GET http://"+address+": refused"), "Prometheus cannot be reached"))
	for _, failure := range []error{err, fmt.Errorf("%w: %w", context.DeadlineExceeded, err)} {
		if got := FailureOf(failure).Body.Message; strings.Contains(got, address) || !strings.Contains(got, "Prometheus cannot be reached") {
			t.Errorf("FailureOf(%v) has the message %q, want the public one", failure, got)
		}
	}

	// An API server that cannot be reached, as client-go reports it.
	const server = "10.96.0.1"
	refused := &url.Error{Op: "Get", URL: "https://" + server + ":443/apis/apps/v1", Err: &net.OpError{
		Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.ParseIP(server), Port: 443}, Err: syscall.ECONNREFUSED,
	}}
	unknown := &url.Error{Op: "Get", URL: "https://api.example:443/api", Err: &net.DNSError{Err: "no such host", Name: "api.example", Server: server}}
	for _, failure := range []error{
		fmt.Errorf("listing deployments: %w", refused), errors.Join(errors.New("nodes"), refused), fmt.Errorf("listing: %w: %w", context.DeadlineExceeded, unknown),
	} {
		if got := FailureOf(failure).Body.Message; strings.Contains(got, server) || strings.Contains(got, "api.example") || !strings.Contains(got, "the server cannot be reached") {
			t.Errorf("FailureOf(%v) has the message %q, want no address, and that the server cannot be reached", failure, got)
		}
	}

	reads := 0
	s := &Shared[int]{Clock: clock.RealClock{}, Timeout: time.Minute, Patience: time.Minute, Read: func(context.Context) (*int, error) {
		reads++
		if reads > 1 {
			return nil, err
		}

		return &reads, nil
	}}
	for range 2 {
		_, _, stale, err := s.Get(t.Context())
		if err != nil || strings.Contains(stale, address) {
			t.Errorf("Get after a failed read = stale %q, %v, want the public message", stale, err)
		}
	}
}

// TestReviewsNameNoAddress checks that a login and a review at an API server that does not answer do not tell its address, the first to anyone.
func TestReviewsNameNoAddress(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}

	reviews := newReviews(client, clock.RealClock{})
	_, err = reviews.Identify(t.Context(), "unknown")
	if err == nil || strings.Contains(FailureOf(err).Body.Message, "127.0.0.1") {
		t.Errorf("Identify at a closed server = %v, want an error without its address", err)
	}

	_, err = reviews.Allowed(WithPerson(t.Context(), Person{Name: "ann", Token: "ann"}), listRecommendations("shop"))
	if err == nil || strings.Contains(FailureOf(err).Body.Message, "127.0.0.1") {
		t.Errorf("Allowed at a closed server = %v, want an error without its address", err)
	}
}
