// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrorKind is the class of a failure; it decides what happens next.
type ErrorKind string

// The kinds of failure.
const (
	// Unreachable servers do not answer, or break off. Retried.
	Unreachable ErrorKind = "unreachable"
	// Overloaded servers ask to come back later (429) or fail with 5xx. Retried.
	Overloaded ErrorKind = "overloaded"
	// TooLarge queries exceed a limit of the server or take too long. Usage splits them.
	TooLarge ErrorKind = "too large"
	// Denied requests lack credentials or rights.
	Denied ErrorKind = "denied"
	// NotPrometheus answers come from something else: HTML, a redirect, 404, other JSON.
	NotPrometheus ErrorKind = "not Prometheus"
	// Refused queries are wrong in the eyes of the server.
	Refused ErrorKind = "refused"
)

// Error is a failed request. It names the URL without user, password and query, what happened, and what to do.
type Error struct {
	Kind ErrorKind
	// URL of the endpoint, without secrets.
	URL string
	// Status is the HTTP status, 0 where there was no answer.
	Status int
	// Message is what went wrong, in the server's words where it used any.
	Message string
	// Advice is what the user can do.
	Advice string
	// RetryAfter is how long the server asked to wait; 0 where it did not say.
	RetryAfter time.Duration
	// Err is the cause below HTTP, if any.
	Err error
}

// Error is one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.URL)
	if e.Status != 0 {
		fmt.Fprintf(&b, ": status %d", e.Status)
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Advice != "" {
		b.WriteString(" (" + e.Advice + ")")
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) retryable() bool { return e.Kind == Unreachable || e.Kind == Overloaded }

// isTooLarge tells whether a smaller query might succeed.
func isTooLarge(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == TooLarge
}

// isSeriesLimit tells whether a query is too large for the number of its series rather than of its samples.
func isSeriesLimit(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	text := strings.ToLower(e.Message)
	return strings.Contains(text, "series") && !strings.Contains(text, "sample")
}

// isEndpointUnavailable tells whether the server lacks this endpoint or keeps it from us, while it may answer queries.
func isEndpointUnavailable(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Status == 403 || e.Status == 404 || e.Status == 405 || e.Status == 501
}

// tooLargePhrases are how servers say that a query exceeds a limit: Prometheus, Thanos, Mimir/Cortex, VictoriaMetrics.
var tooLargePhrases = []string{
	"too many samples", "too many points", "exceeded maximum resolution", "exceeded the maximum", "exceeds the limit",
	"maximum number of", "the max number of", "limit exceeded", "exceeded series limit", "exceeded samples limit",
	"exceeded chunks limit", "resourceexhausted", "resource exhausted", "-search.max", "response too large",
	"result too large", "received message larger than max",
}

// errorFromStatus classifies an answer with a status of 400 and more. errorType and message are the server's own, if its
// answer was Prometheus's JSON.
func errorFromStatus(status int, errorType, message string) *Error {
	e := &Error{Status: status, Message: message}
	lower := strings.ToLower(message)
	switch {
	case status == 401:
		e.Kind, e.Advice = Denied, "check the user name and password or the bearer token"
	case status == 403:
		e.Kind, e.Advice = Denied, "the credentials are known but may not query; grant them read access to the query API"
	case status == 429:
		e.Kind, e.Advice = Overloaded, "the server limits its clients; lower the concurrency"
	case errorType == "timeout" || status == 504:
		e.Kind, e.Advice = TooLarge, "the query ran into a time limit; lower the samples per query"
	case isLimitStatus(status, errorType) && containsAny(lower, tooLargePhrases):
		e.Kind, e.Advice = TooLarge, "lower the samples per query or raise the server's limit"
	case errorType == "bad_data" || errorType == "execution":
		e.Kind, e.Advice = Refused, "the server did not accept the query; check extra labels and parameters"
	case status == 404 || status == 405:
		e.Kind, e.Advice = NotPrometheus, "there is no Prometheus API at this address; check host, port and path prefix"
	case status == 413:
		e.Kind, e.Advice = TooLarge, "a proxy refuses bodies of this size; raise its limit"
	case status >= 500:
		e.Kind, e.Advice = Overloaded, "the server failed; look at its log"
	default:
		e.Kind, e.Advice = Refused, "check address, extra labels and parameters"
	}
	return e
}

func isLimitStatus(status int, errorType string) bool {
	return status == 400 || status == 422 || status == 503 || errorType == "execution" || errorType == "bad_data" || errorType == "internal"
}

func containsAny(text string, phrases []string) bool {
	for _, p := range phrases {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}
