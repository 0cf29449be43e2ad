// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"crane.io/crane/internal/component/backoff"
	"crane.io/crane/internal/metrics"
)

// Backoff between attempts: it doubles up to the longest delay, and half of it is random.
const (
	firstDelay    = 500 * time.Millisecond
	longestDelay  = 30 * time.Second
	longestAdvice = 2 * time.Minute // Longest Retry-After header; a longer one ends the attempts.
)

// client sends requests. It limits concurrency, authenticates, retries and counts. It is safe for concurrent use.
type client struct {
	cfg       Config
	base      *url.URL
	transport http.RoundTripper
	headers   *headerSource
	slots     *slots
	compress  bool
	wait      func(ctx context.Context, d time.Duration) error
	getOnly   sync.Map // Endpoints that reject POST.

	mu    sync.Mutex
	stats metrics.Stats
	skew  time.Duration
	host  string // The X-Server-Hostname header, which VictoriaMetrics sends.
}

func newClient(cfg Config) (*client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}

	base, err := parseAddress(cfg.Address)
	if err != nil {
		return nil, err
	}

	// Credentials in the address move to the configuration: the base URL is shown in errors.
	if user := base.User; user != nil {
		base.User = nil
		if cfg.Username == "" && cfg.BearerToken == "" && cfg.BearerTokenFile == "" {
			cfg.Username = user.Username()
			cfg.Password, _ = user.Password()
		}
	}

	transport := cfg.Transport
	if transport == nil {
		if transport, err = newTransport(cfg); err != nil {
			return nil, err
		}
	}

	return &client{
		cfg:       cfg,
		base:      base,
		transport: transport,
		headers:   &headerSource{fixed: cfg.Headers, path: cfg.HeadersFile},
		slots:     newSlots(cfg.Concurrency),
		compress:  !isLoopback(base),
		wait:      sleep,
	}, nil
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// request is one request of an endpoint.
type request struct {
	endpoint string
	params   url.Values
	// get selects GET for endpoints without POST.
	get bool
}

// call sends a request until read has consumed a response or a retry is useless. Each attempt calls read again, which must then discard the
// results of earlier attempts.
func (c *client) call(ctx context.Context, r request, read func(io.Reader) error) error {
	release, err := c.slots.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()

	delays := backoff.Exponential{First: firstDelay, Last: longestDelay}
	delay := delays.First
	for attempt := 1; ; attempt++ {
		err := c.attempt(ctx, r, read)
		if err == nil {
			return nil
		}

		if ctx.Err() != nil {
			return &interruptedError{c.base.Redacted(), context.Cause(ctx)}
		}

		// Errors that another attempt cannot cure end the request, as does a server that asks for a long pause.
		var failure *Error
		if !errors.As(err, &failure) || !failure.retryable() || failure.RetryAfter > longestAdvice {
			return err
		}

		if attempt == c.cfg.MaxAttempts {
			return fmt.Errorf("after %d attempts: %w", attempt, err)
		}

		// Jitter spreads the attempts of clients that failed together.
		pause := max(failure.RetryAfter, delay/2+time.Duration(c.cfg.Jitter()*float64(delay/2)))
		if err := c.wait(ctx, pause); err != nil {
			return &interruptedError{c.base.Redacted(), err}
		}

		delay = delays.Next(delay)
		c.count(func(s *metrics.Stats) { s.Retries++ })
	}
}

// attempt sends a request once. An endpoint that rejects POST, as behind some read-only proxies, receives GET from then on.
func (c *client) attempt(ctx context.Context, r request, read func(io.Reader) error) error {
	if _, rejectsPost := c.getOnly.Load(r.endpoint); rejectsPost || r.get || c.cfg.GetOnly {
		return c.send(ctx, http.MethodGet, r, read)
	}

	err := c.send(ctx, http.MethodPost, r, read)
	var failure *Error
	if errors.As(err, &failure) && (failure.Status == http.StatusMethodNotAllowed || failure.Status == http.StatusNotImplemented) {
		if err = c.send(ctx, http.MethodGet, r, read); err == nil {
			c.getOnly.Store(r.endpoint, true)
		}
	}

	return err
}

// send sends a request with a method and passes the body of the response to read.
func (c *client) send(ctx context.Context, method string, r request, read func(io.Reader) error) error {
	timeoutCtx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()

	begin := c.cfg.Now()
	req, safeURL, err := c.build(timeoutCtx, method, r)
	if err != nil {
		return err
	}

	// Requests that fail count as well, with the bytes that were read.
	var body *bodyReader
	defer func() {
		c.count(func(s *metrics.Stats) {
			s.Queries++
			s.QueryTime += c.cfg.Now().Sub(begin)
			if body != nil {
				s.Bytes += body.read
			}
		})
	}()

	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return c.unreachable(ctx, timeoutCtx, safeURL, err)
	}
	defer resp.Body.Close()

	c.noteHeaders(resp, begin)
	if body, err = newBodyReader(resp); err != nil {
		return &Error{
			Kind:   Unreachable,
			URL:    safeURL,
			Status: resp.StatusCode,
			Err:    err,
		}
	}

	if err := checkResponse(resp, body, safeURL); err != nil {
		return err
	}

	return c.readError(ctx, timeoutCtx, safeURL, read(body))
}

// completeAnswers returns the parameters by which Thanos and a cluster of VictoriaMetrics answer with an error instead of a part of the data:
// a history without its older half, or without some pods, looks like less usage. Other servers ignore them.
func completeAnswers() url.Values {
	return url.Values{"partial_response": {"false"}, "deny_partial_response": {"1"}}
}

// build returns the HTTP request, and the URL without secrets for errors.
func (c *client) build(ctx context.Context, method string, r request) (*http.Request, string, error) {
	u := *c.base
	u.Path += r.endpoint
	safeURL := u.String()

	values := completeAnswers()
	for name, value := range c.cfg.Params {
		values.Set(name, value)
	}

	// The parameters of the request come last, so that configured ones cannot replace them.
	maps.Copy(values, r.params)
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(values.Encode())
	} else {
		u.RawQuery = values.Encode()
	}

	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, safeURL, fmt.Errorf("request to %s: %w", safeURL, err)
	}

	headers, err := c.headers.current()
	if err != nil {
		return nil, safeURL, &Error{
			Kind:   Denied,
			URL:    safeURL,
			Err:    err,
			Advice: "check the file with headers",
		}
	}

	for name, value := range headers {
		req.Header.Set(name, value)
	}

	if body != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}

	req.Header.Set("Accept", "application/json")
	if c.compress {
		req.Header.Set("Accept-Encoding", "gzip")
	}

	return req, safeURL, nil
}

// noteHeaders records the clock skew, measured halfway between request and response, and the host name from the headers.
func (c *client) noteHeaders(resp *http.Response, begin time.Time) {
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()

	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		c.skew = date.Sub(begin.Add(now.Sub(begin) / 2))
	}
	if host := resp.Header.Get("X-Server-Hostname"); host != "" {
		c.host = host
	}
}

// count updates the statistics.
func (c *client) count(add func(*metrics.Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()

	add(&c.stats)
}

// statistics returns a copy of the statistics.
func (c *client) statistics() metrics.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()

	out := c.stats
	out.Warnings = slices.Clone(out.Warnings)
	return out
}

// serverInfo returns the clock skew and the host name from the latest headers.
func (c *client) serverInfo() (skew time.Duration, host string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.skew, c.host
}

// noteAnswer counts a complete response.
func (c *client) noteAnswer(a answer) {
	c.count(func(s *metrics.Stats) {
		s.Series += a.series
		s.Samples += a.samples
		s.Invalid += a.histograms
	})

	c.warn(a.warnings...)
}

// warn adds warnings to the statistics, each once.
func (c *client) warn(warnings ...string) {
	c.count(func(s *metrics.Stats) {
		for _, w := range warnings {
			if len(s.Warnings) < maxWarnings && !slices.Contains(s.Warnings, w) {
				s.Warnings = append(s.Warnings, w)
			}
		}
	})
}

// maxAnswer x Config.MaxSamples bounds one response. A server may return slightly more than estimated; four times as much indicates a wrong
// query or a hostile server.
const maxAnswer = 4

// query sends a query and passes the series of the response to sink. resultType is the expected type of result: vector or matrix.
func (c *client) query(ctx context.Context, endpoint string, params url.Values, resultType string, sink collector) error {
	limit := maxAnswer * int64(c.cfg.MaxSamples)
	return c.call(ctx, request{endpoint: endpoint, params: params}, func(r io.Reader) error {
		// An earlier attempt may have broken off after some series.
		sink.reset()
		d := &decoder{s: newScanner(r), limit: limit, sink: sink}
		if err := d.decode(); err != nil {
			return err
		}

		a := d.answer
		if err := a.check(); err != nil {
			return err
		}

		if a.plain || a.resultType != "" && a.resultType != resultType {
			got := a.resultType
			if got == "" || got == resultType {
				got = "scalar or string"
			}

			return &Error{
				Kind: Refused, Message: fmt.Sprintf("the query returns a %s, expected a %s", sanitize(got), resultType),
				Advice: "a query must select series",
			}
		}

		c.noteAnswer(a)
		return nil
	})
}

// check returns the error that a response contains, if any.
func (a answer) check() error {
	switch {
	case a.status == "success":
		return nil
	case a.status == "" && a.message == "":
		return &malformedError{what: "no status in the answer"}
	}

	return errorFromStatus(http.StatusOK, a.errorType, sanitize(a.message))
}

// labelSets requests the label sets of the series of a selector that have samples between from and to. The server answers from its index
// without reading samples.
func (c *client) labelSets(ctx context.Context, sel string, from, to time.Time, sink collector) error {
	params := url.Values{"match[]": {sel}, "start": {formatTime(from)}, "end": {formatTime(to)}}
	return c.call(ctx, request{endpoint: seriesPath, params: params}, func(r io.Reader) error {
		sink.reset()
		d := &decoder{
			s:         newScanner(r),
			limit:     maxAnswer * int64(c.cfg.MaxSamples),
			labelSets: true,
			sink:      sink,
		}

		err := d.decode()
		if err == nil {
			err = d.answer.check()
		}
		if err == nil {
			c.noteAnswer(d.answer)
		}

		return err
	})
}

// maxSmall bounds responses that are read whole, in bytes.
const maxSmall = 64 << 20

// fetchJSON reads an endpoint with a small response into data. It sends GET, as some of these endpoints do not support POST.
func (c *client) fetchJSON(ctx context.Context, endpoint string, params url.Values, data any) error {
	return c.call(ctx, request{endpoint: endpoint, params: params, get: true}, func(r io.Reader) error {
		raw, err := io.ReadAll(io.LimitReader(r, maxSmall+1))
		if err != nil {
			return err
		}

		if len(raw) > maxSmall {
			return &malformedError{what: fmt.Sprintf("an answer of more than %d bytes", maxSmall)}
		}

		var body struct {
			Status    string          `json:"status"`
			ErrorType string          `json:"errorType"`
			Error     string          `json:"error"`
			Data      json.RawMessage `json:"data"`
		}

		if err := json.Unmarshal(raw, &body); err != nil {
			return &malformedError{what: sanitize(err.Error())}
		}

		if body.Status != "success" {
			return errorFromStatus(http.StatusOK, body.ErrorType, sanitize(body.Error))
		}

		if err := json.Unmarshal(body.Data, data); err != nil {
			return &malformedError{what: sanitize(err.Error())}
		}

		return nil
	})
}
