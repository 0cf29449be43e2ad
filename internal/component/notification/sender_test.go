// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"
)

// endpoint records the bodies of requests and answers with codes, then with 200. It is a RoundTripper, because a bubble's clock does not
// advance while a connection waits.
type endpoint struct {
	mu     sync.Mutex
	codes  []int
	bodies []string
	at     []time.Time
}

func (e *endpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}

	e.bodies, e.at = append(e.bodies, string(body)), append(e.at, time.Now())
	code := http.StatusOK
	if len(e.codes) > 0 {
		code = e.codes[0]
		e.codes = e.codes[1:]
	}

	return &http.Response{StatusCode: code, Body: http.NoBody, Header: http.Header{"Location": {"http://10.0.0.1/"}}, Request: r}, nil
}

func urlFile(t *testing.T, content string) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

// run sends events in a bubble and returns the sender once nothing is left to do.
func run(t *testing.T, e *endpoint, format Format, file string, events ...Event) *Sender {
	t.Helper()

	s := NewSender(format, file, clock.RealClock{}, NewCounter())
	synctest.Test(t, func(t *testing.T) {
		s.client.Transport = e
		s.wake = make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})

		for _, event := range events {
			s.Enqueue(event)
		}

		go func() { defer close(done); _ = s.Start(ctx) }()
		time.Sleep(time.Hour) // Of the bubble's clock.
		cancel()
		<-done
	})

	return s
}

func result(s *Sender, name string) float64 {
	return testutil.ToFloat64(s.counts.WithLabelValues(string(s.format), name))
}

// TestSender_Formats checks the body of both formats: events that wait are in one request, and nothing in a name becomes markup.
func TestSender_Formats(t *testing.T) {
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	events := []Event{
		{Time: at, Reason: ReasonRolledBack, Object: "Deployment shop/web", Message: "step 2 caused a regression: <!channel> & more"},
		{Time: at, Reason: ReasonBreakerOpen, Message: strings.Repeat("ä", 2000)},
	}
	e := &endpoint{}
	s := run(t, e, FormatSlack, urlFile(t, "https://hooks.example.com/secret\n"), events...)

	var slack struct{ Text string }
	if len(e.bodies) != 1 || json.Unmarshal([]byte(e.bodies[0]), &slack) != nil {
		t.Fatalf("requests %q, want one in Slack's format", e.bodies)
	}

	want := "*AdoptionRolledBack* Deployment shop/web\n`step 2 caused a regression: &lt;!channel&gt; &amp; more`\n*AdoptionBreakerOpen*\n" +
		strings.Repeat("ä", 1000) + "...\n"
	if slack.Text != want {
		t.Errorf("the text for Slack is %q, want %q", slack.Text, want)
	}
	if result(s, "sent") != 2 {
		t.Errorf("%v events are counted as sent, want 2", result(s, "sent"))
	}

	e = &endpoint{}
	run(t, e, FormatWebhook, urlFile(t, "https://hooks.example.com/secret"), events[0])

	wantJSON := `{"schema":"crane.io/notification/v1","events":[{"time":"2026-11-25T12:00:00Z","reason":"AdoptionRolledBack",` +
		`"object":"Deployment shop/web","message":"step 2 caused a regression: \u003c!channel\u003e \u0026 more"}]}`
	if len(e.bodies) != 1 || e.bodies[0] != wantJSON {
		t.Errorf("requests %q, want one: %s", e.bodies, wantJSON)
	}
}

// TestSender_HostileText checks that a message which quotes a tenant is one line of code in Slack: it adds no event, link, image or mention.
func TestSender_HostileText(t *testing.T) {
	e := &endpoint{}
	run(t, e, FormatSlack, urlFile(t, "https://hooks.example.com/secret"), Event{
		Reason: ReasonStopped, Object: "Deployment shop/web",
		Message: "refused: `\n*AdoptionBreakerOpen*\r\n![](https://evil.example/i.png) @channel \u202e\x1b[2J`",
	})

	var slack struct{ Text string }
	if len(e.bodies) != 1 || json.Unmarshal([]byte(e.bodies[0]), &slack) != nil {
		t.Fatalf("requests %q, want one in Slack's format", e.bodies)
	}

	lines := strings.Split(slack.Text, "\n")
	if len(lines) != 3 || lines[2] != "" || strings.Count(lines[1], "`") != 2 || !strings.HasPrefix(lines[1], "`refused") || !strings.HasSuffix(lines[1], "`") {
		t.Errorf("the text for Slack is %q, want a line with the object and a line of code", slack.Text)
	}
	if strings.ContainsAny(slack.Text, "\u202e\x1b\r") {
		t.Errorf("the text for Slack is %q, want it without control and bidirectional characters", slack.Text)
	}
}

// TestEnqueue_FloodOfOneNamespace checks that events of one namespace keep those of others and of the cluster in the queue.
func TestEnqueue_FloodOfOneNamespace(t *testing.T) {
	s := NewSender(FormatWebhook, "", clock.RealClock{}, NewCounter())
	flood := func() {
		for range 2 * queueSize {
			s.Enqueue(Event{Namespace: "evil", Reason: ReasonStopped})
		}
	}

	s.Enqueue(Event{Namespace: "pay", Reason: ReasonRolledBack})
	flood()
	s.Enqueue(Event{Namespace: "shop", Reason: ReasonRolledBack})
	s.Enqueue(Event{Reason: ReasonBreakerOpen})
	flood()

	counts := map[string]int{}
	for _, e := range s.queue {
		counts[e.Namespace]++
	}

	if want := map[string]int{"pay": 1, "shop": 1, "": 1, "evil": queueSize - 3}; !maps.Equal(counts, want) {
		t.Errorf("the queue has the events %v by namespace, want %v", counts, want)
	}
	if want := 4*queueSize + 3 - queueSize; s.dropped != want {
		t.Errorf("%d events are dropped, want %d", s.dropped, want)
	}
}

// TestSender_Retries: a busy endpoint is asked again later, at most five times; a refusal and a redirect are final.
func TestSender_Retries(t *testing.T) {
	for name, test := range map[string]struct {
		codes    []int
		requests int
		result   string
	}{
		"busy":       {[]int{503, 429}, 3, "sent"},
		"down":       {[]int{500, 500, 500, 500, 500, 500, 500}, 5, "failed"},
		"refused":    {[]int{403, 403}, 1, "failed"},
		"redirected": {[]int{302, 302}, 1, "failed"},
	} {
		e := &endpoint{codes: test.codes}
		s := run(t, e, FormatWebhook, urlFile(t, "https://hooks.example.com/secret"), Event{Reason: ReasonStopped})
		if len(e.bodies) != test.requests || result(s, test.result) != 1 {
			t.Errorf("%s: %d requests, %v events %s, want %d and 1", name, len(e.bodies), result(s, test.result), test.result, test.requests)
		}

		for i := 1; i < len(e.at); i++ {
			if pause := e.at[i].Sub(e.at[i-1]); pause < firstRetry {
				t.Errorf("%s: request %d after %s, want %s or more", name, i, pause, firstRetry)
			}
		}
	}
}

// TestSender_QueueLimit: a burst is one request with as many events as the queue has places, and the others are counted.
func TestSender_QueueLimit(t *testing.T) {
	e := &endpoint{}
	s := run(t, e, FormatSlack, urlFile(t, "https://hooks.example.com/secret"), make([]Event, 1000)...)
	if len(e.bodies) != 1 || result(s, "sent") != queueSize || result(s, "dropped") != 1000-queueSize || !strings.Contains(e.bodies[0], "950 further events") {
		t.Errorf("1000 events: %d requests, %v sent, %v dropped, want one with %d events", len(e.bodies), result(s, "sent"), result(s, "dropped"), queueSize)
	}

	var none *Sender
	none.Enqueue(Event{}) // Off.
}

// TestCheckURLFile: a URL in plain text beyond the loopback interface is refused, and no error contains the URL.
func TestCheckURLFile(t *testing.T) {
	for content, want := range map[string]string{
		"https://hooks.example.com/secret": "", "http://127.0.0.1:1/secret": "", "http://hooks.example.com/secret": "must begin with https://",
		"": "does not contain a URL", "secret": "does not contain a URL", "ftp://hooks.example.com/secret": "must begin with https://",
		"https://hooks.example.com/" + strings.Repeat("secret", 1000): "does not contain a URL", "https://exa mple/secret": "does not contain a URL",
	} {
		err := CheckURLFile(urlFile(t, content))
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("CheckURLFile(%.40q) = %v, want %q and no secret", content, err, want)
		}
	}

	if err := CheckURLFile(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("CheckURLFile of a missing file = nil, want an error")
	}

	s := NewSender(FormatSlack, urlFile(t, "http://127.0.0.1:1/secret"), clock.RealClock{}, NewCounter())
	if err := s.post(t.Context(), nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("post to a closed port: %v, want an error without the secret", err)
	}
}
