// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// ErrorKind is the class of a failure and determines its handling.
type ErrorKind string

// Kinds of failure.
const (
	// Unreachable means no or an incomplete response. The request is retried.
	Unreachable ErrorKind = "unreachable"
	// Overloaded means status 429 or 5xx, or that a store behind the server does not answer. The request is retried.
	Overloaded ErrorKind = "overloaded"
	// TooLarge means that the query exceeds a limit of the server or takes too long. Usage splits the query.
	TooLarge ErrorKind = "too large"
	// Denied means missing credentials or permissions.
	Denied ErrorKind = "denied"
	// NotPrometheus means that another kind of server responded: HTML, a redirect, 404 or other JSON.
	NotPrometheus ErrorKind = "not Prometheus"
	// Refused means that the server rejected the query as invalid.
	Refused ErrorKind = "refused"
)

// Error is a failed request. Its text contains the URL without user, password and query, the failure, and advice.
type Error struct {
	Kind ErrorKind
	// URL of the endpoint, without secrets.
	URL string
	// Status is the HTTP status; 0 without a response.
	Status int
	// Message describes the failure, with the message of the server if it sent one.
	Message string
	// Advice is the recommended action of the user.
	Advice string
	// RetryAfter is the delay that the server requested; 0 for none.
	RetryAfter time.Duration
	// Err is the cause below HTTP, if any.
	Err error
}

// Error returns one line.
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

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// PublicMessage implements metrics.PublicError. What the server says of the query, and its limits, are no secret; the address of the server,
// and the hosts and proxies on the way to it, are.
func (e *Error) PublicMessage() string {
	text := map[ErrorKind]string{
		Unreachable: "Prometheus cannot be reached", Overloaded: "Prometheus is overloaded or fails", TooLarge: "the query is too large for Prometheus",
		Denied: "Prometheus denies access", NotPrometheus: "the data source does not answer like Prometheus", Refused: "Prometheus refuses the query",
	}[e.Kind]

	if e.Status != 0 {
		text += fmt.Sprintf(": status %d", e.Status)
	}
	if e.Message != "" && (e.Kind == Refused || e.Kind == TooLarge) {
		text += ": " + e.Message
	}

	return text
}

// interruptedError is a request whose caller ended it.
type interruptedError struct {
	url   string
	cause error
}

// Error returns the URL and the cause.
func (e *interruptedError) Error() string { return e.url + ": " + e.cause.Error() }

// Unwrap returns the cause.
func (e *interruptedError) Unwrap() error { return e.cause }

// PublicMessage implements metrics.PublicError.
func (e *interruptedError) PublicMessage() string {
	return "the query of Prometheus was ended: " + e.cause.Error()
}

func (e *Error) retryable() bool { return e.Kind == Unreachable || e.Kind == Overloaded }

// isRefused reports whether the server would answer the same query in the same way again.
func isRefused(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Kind == Refused || e.Kind == TooLarge)
}

// isTooLarge reports whether a smaller query might succeed.
func isTooLarge(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == TooLarge
}

// isSeriesLimit reports whether a query exceeds a limit on series rather than on samples.
func isSeriesLimit(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}

	text := strings.ToLower(e.Message)
	return strings.Contains(text, "series") && !strings.Contains(text, "sample")
}

// isEndpointUnavailable reports whether the server lacks this endpoint or denies access to it, while it may answer queries.
func isEndpointUnavailable(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}

	return e.Status == 403 || e.Status == 404 || e.Status == 405 || e.Status == 501
}

// tooLargePhrases are the phrases for exceeded limits of Prometheus, Thanos, Mimir/Cortex and VictoriaMetrics.
var tooLargePhrases = []string{
	"too many samples", "too many points", "exceeded maximum resolution", "exceeded the maximum", "exceeds the limit",
	"maximum number of", "the max number of", "limit exceeded", "exceeded series limit", "exceeded samples limit",
	"exceeded chunks limit", "resourceexhausted", "resource exhausted", "-search.max", "response too large",
	"result too large", "received message larger than max",
}

// errorFromStatus classifies a failed response. errorType and message are those of the server, if it sent Prometheus's JSON.
func errorFromStatus(status int, errorType, message string) *Error {
	e := &Error{Status: status, Message: message}
	lower := strings.ToLower(message)
	switch {
	case status == 401 && strings.Contains(lower, "no org id"): // Mimir, Cortex and Loki.
		e.Kind = Denied
		e.Advice = "the server has tenants; send the header X-Scope-OrgID with the name of one"
	case status == 401:
		e.Kind = Denied
		e.Advice = "check the user name and password or the bearer token"
	case status == 403:
		e.Kind = Denied
		e.Advice = "the credentials are known but may not query; grant them read access to the query API"

	case status == 429:
		e.Kind = Overloaded
		e.Advice = "the server limits its clients; lower the concurrency"
	case errorType == "timeout" || status == 504:
		e.Kind = TooLarge
		e.Advice = "the query ran into a time limit; lower the samples per query"
	case isLimitStatus(status, errorType) && containsAny(lower, tooLargePhrases):
		e.Kind = TooLarge
		e.Advice = "lower the samples per query or raise the server's limit"

	case strings.Contains(lower, "code = unavailable"): // Thanos has status 422.
		e.Kind = Overloaded
		e.Advice = "a store behind the server does not answer; check the stores that the server reads from"
	case errorType == "bad_data" || errorType == "execution":
		e.Kind = Refused
		e.Advice = "the server did not accept the query; check extra labels and parameters"
	case status == 404 || status == 405:
		e.Kind = NotPrometheus
		e.Advice = "there is no Prometheus API at this address; check host, port and path prefix"

	case status == 413:
		e.Kind = TooLarge
		e.Advice = "a proxy refuses bodies of this size; raise its limit"
	case status >= 500:
		e.Kind = Overloaded
		e.Advice = "the server failed; check its log"
	default:
		e.Kind = Refused
		e.Advice = "check address, extra labels and parameters"
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

// readError converts an error while reading a response into an Error with the URL.
func (c *client) readError(ctx, timeoutCtx context.Context, safeURL string, err error) error {
	var failure *Error
	var bad *malformedError
	switch {
	case err == nil:
		return nil
	// An error that the body reports lacks only the URL.
	case errors.As(err, &failure):
		failure.URL = safeURL
		return failure

	case errors.Is(err, errTooMany):
		return &Error{
			Kind:   TooLarge,
			URL:    safeURL,
			Err:    err,
			Advice: "raise the samples per query",
		}

	case errors.As(err, &bad):
		return &Error{
			Kind:    NotPrometheus,
			URL:     safeURL,
			Message: "the answer is not Prometheus's JSON",
			Err:     err,
			Advice:  "check that the address is that of the query API, and any proxy in between",
		}
	}

	return c.unreachable(ctx, timeoutCtx, safeURL, err)
}

// unreachable converts an error of the connection into an Error with the URL.
func (c *client) unreachable(ctx, timeoutCtx context.Context, safeURL string, err error) error {
	var detail *url.Error
	if errors.As(err, &detail) {
		err = detail.Err // url.Error repeats the URL with the query.
	}

	if ctx.Err() == nil && timeoutCtx.Err() != nil {
		return &Error{
			Kind:    TooLarge,
			URL:     safeURL,
			Message: fmt.Sprintf("no whole answer within %v", c.cfg.Timeout),
			Advice:  "raise the timeout or lower the samples per query",
		}
	}

	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return &Error{
			Kind:    Unreachable,
			URL:     safeURL,
			Message: "the answer broke off",
			Err:     err,
		}
	}

	kind, advice := diagnose(err)
	return &Error{
		Kind:   kind,
		URL:    safeURL,
		Err:    err,
		Advice: advice,
	}
}

// diagnose returns the kind of a failure below HTTP, which determines whether a retry may help, and advice for the user.
func diagnose(err error) (ErrorKind, string) {
	var untrusted *tls.CertificateVerificationError
	var op *net.OpError
	var plain tls.RecordHeaderError

	var lookup *net.DNSError
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
		return Denied, "check the token, certificate and key files"
	case errors.As(err, &untrusted):
		return Denied, "set the CA file that signed the server's certificate, and the server name if it differs from the host"
	case errors.As(err, &op) && op.Op == "remote error": // crypto/tls wraps an alert in this operation.
		return Denied, "the server refused the TLS connection; check the client certificate"

	case errors.As(err, &plain) || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return NotPrometheus, "the server speaks plain HTTP; begin the address with http://"
	case errors.As(err, &lookup):
		return Unreachable, "the host name is not known here; check the address"
	case errors.Is(err, syscall.ECONNREFUSED):
		return Unreachable, "nothing listens there; check host and port"
	}

	return Unreachable, "check the address and the network"
}
