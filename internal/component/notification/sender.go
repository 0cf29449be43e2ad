// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/component/backoff"
)

const (
	// queueSize is the maximum number of events that wait for a request.
	queueSize = 50
	// minInterval is the minimum time between two deliveries.
	minInterval = 10 * time.Second
	// maxAttempts is the number of requests for the same events; the delay between two doubles from firstRetry to lastRetry.
	maxAttempts = 5
	firstRetry  = 10 * time.Second
	lastRetry   = 2 * time.Minute
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
	// maxURLFile bounds the size of the file with the URL.
	maxURLFile = 4096
)

// Sender sends events to one endpoint. It is a manager.Runnable of the leader. A nil Sender drops events.
type Sender struct {
	format Format
	file   string
	clock  clock.Clock
	client *http.Client
	counts *prometheus.CounterVec

	mu      sync.Mutex
	queue   []Event
	dropped int
	wake    chan struct{}
}

// NewCounter returns the metric of senders.
func NewCounter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "crane_notifications_total", Help: "Events for notifications by endpoint and result: sent, failed after all attempts, or dropped from a full queue.",
	}, []string{"endpoint", "result"})
}

// NewSender returns a sender that reads the URL from a file before each request, so that a secret can be replaced.
func NewSender(format Format, file string, clk clock.Clock, counts *prometheus.CounterVec) *Sender {
	return &Sender{
		format: format, file: file, clock: clk, counts: counts, wake: make(chan struct{}, 1),
		client: &http.Client{
			Timeout: requestTimeout,
			// A redirect could lead into the cluster.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Sender) NeedLeaderElection() bool { return true }

// Enqueue adds an event. It never blocks: if the queue is full, the newest event of the namespace with the most is dropped and counted, so that
// many events of one namespace keep none of others out.
func (s *Sender) Enqueue(e Event) {
	if s == nil {
		return
	}

	s.mu.Lock()
	s.queue = append(s.queue, e)
	if len(s.queue) > queueSize {
		i := excessEvent(s.queue)
		s.queue = slices.Delete(s.queue, i, i+1)
		s.dropped++
		s.count("dropped", 1)
	}

	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// excessEvent returns the index of the newest event of the namespace with the most events. Events of the cluster are not those of a namespace.
func excessEvent(queue []Event) int {
	counts := map[string]int{}
	largest := 0
	for _, e := range queue {
		if e.Namespace != "" {
			counts[e.Namespace]++
			largest = max(largest, counts[e.Namespace])
		}
	}

	for i := len(queue) - 1; i >= 0 && largest > 0; i-- {
		if counts[queue[i].Namespace] == largest {
			return i
		}
	}

	return len(queue) - 1
}

func (s *Sender) count(result string, n int) {
	s.counts.WithLabelValues(string(s.format), result).Add(float64(n))
}

// Start implements manager.Runnable: it sends events until ctx ends. Events that wait then are dropped; they are Kubernetes events too.
func (s *Sender) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}

		s.mu.Lock()
		events := s.queue
		dropped := s.dropped
		s.queue = nil
		s.dropped = 0
		s.mu.Unlock()

		// The queue may have been sent by an earlier signal.
		if len(events) == 0 {
			continue
		}

		if err := s.deliver(ctx, events, dropped); err != nil {
			s.count("failed", len(events))
			ctrl.LoggerFrom(ctx).WithName("notification").Error(err, "sending events", "endpoint", s.format, "events", len(events))
		} else {
			s.count("sent", len(events))
		}

		if !s.wait(ctx, minInterval) {
			return nil
		}
	}
}

// wait reports false if ctx ends before the time is over.
func (s *Sender) wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.clock.After(d):
		return true
	}
}

// permanentError is an answer that a retry does not change.
type permanentError struct{ error }

// deliver sends events, and retries answers with 429 and 5xx and failures of the network.
func (s *Sender) deliver(ctx context.Context, all []Event, dropped int) error {
	body, err := s.format.encode(all, dropped)
	if err != nil {
		return fmt.Errorf("encoding events: %w", err)
	}

	delays := backoff.Exponential{First: firstRetry, Last: lastRetry}
	for attempt := 1; ; attempt++ {
		err = s.post(ctx, body)
		var permanent permanentError
		if err == nil || errors.As(err, &permanent) || attempt == maxAttempts || !s.wait(ctx, delays.After(attempt)) {
			return err
		}
	}
}

// post sends one request. Errors do not contain the URL, which is a secret.
func (s *Sender) post(ctx context.Context, body []byte) error {
	target, err := readURL(s.file)
	if err != nil {
		return err
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return permanentError{errors.New("the URL cannot be requested")}
	}

	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // Without the URL.
		}

		return fmt.Errorf("sending to the %s endpoint: %w", s.format, err)
	}
	defer response.Body.Close()

	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16))
	switch code := response.StatusCode; {
	case code < 300:
		return nil
	case code == http.StatusTooManyRequests || code >= 500:
		return fmt.Errorf("the %s endpoint answered with status %d", s.format, code)
	default:
		return permanentError{fmt.Errorf("the %s endpoint answered with status %d", s.format, code)}
	}
}

// readURL reads the URL of an endpoint: https, or http to the loopback interface. Errors do not contain it.
func readURL(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("URL of the endpoint: %w", err)
	}
	defer f.Close()

	content, err := io.ReadAll(io.LimitReader(f, maxURLFile+1))
	if err != nil {
		return "", fmt.Errorf("URL of the endpoint: %w", err)
	}

	text := strings.TrimSpace(string(content))
	u, err := url.Parse(text)
	if err != nil || len(content) > maxURLFile || u.Host == "" {
		return "", permanentError{fmt.Errorf("%s does not contain a URL", file)}
	}

	local := u.Hostname() == "127.0.0.1" || u.Hostname() == "::1" || u.Hostname() == "localhost"
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return "", permanentError{fmt.Errorf("%s: the URL must begin with https://", file)}
	}

	return text, nil
}

// CheckURLFile returns an error if a file does not contain the URL of an endpoint.
func CheckURLFile(file string) error {
	_, err := readURL(file)
	return err
}
