// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// maxBody bounds a response after decompression, in bytes. A million samples take about 30 MiB.
	maxBody = 4 << 30
	// maxErrorBody bounds the part of an error response that is read, in bytes.
	maxErrorBody = 64 << 10
	// maxMessage bounds the part of it that is shown, in bytes.
	maxMessage = 300
)

// bodyReader decompresses, counts and limits a body.
type bodyReader struct {
	r    io.Reader
	read int64
}

func newBodyReader(resp *http.Response) (*bodyReader, error) {
	b := &bodyReader{r: resp.Body}
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		z, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("decompressing the answer: %w", err)
		}

		b.r = z
	}

	return b, nil
}

// Read implements io.Reader.
func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.read += int64(n); b.read > maxBody {
		return 0, &malformedError{what: fmt.Sprintf("the answer is larger than %d bytes", int64(maxBody))}
	}

	return n, err
}

// checkResponse rejects responses that are not JSON with status 200: redirects, errors and HTML.
func checkResponse(resp *http.Response, body io.Reader, safeURL string) error {
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		e := &Error{
			Kind:    NotPrometheus,
			URL:     safeURL,
			Status:  resp.StatusCode,
			Message: "redirected",
		}

		e.Advice = "use the target address; a log-in page means that credentials are missing"
		// Queries of the target may contain tokens of a log-in.
		if to, err := resp.Location(); err == nil {
			to.RawQuery, to.Fragment = "", ""
			e.Message = "redirected to " + to.Redacted()
		}

		return e
	}

	if resp.StatusCode >= 400 {
		errorType, message := readFailure(resp, body)
		e := errorFromStatus(resp.StatusCode, errorType, message)
		e.URL = safeURL
		e.RetryAfter = retryAfter(resp)

		return e
	}

	if isHTML(resp.Header.Get("Content-Type")) {
		_, message := readFailure(resp, body)
		return &Error{
			Kind:    NotPrometheus,
			URL:     safeURL,
			Status:  resp.StatusCode,
			Message: "a web page instead of JSON: " + message,
			Advice:  "the address is that of a user interface or a log-in page; set that of the API, with its path prefix",
		}
	}

	if resp.StatusCode != http.StatusOK {
		return &Error{
			Kind:    NotPrometheus,
			URL:     safeURL,
			Status:  resp.StatusCode,
			Message: "not an answer to a query",
			Advice:  "check the address",
		}
	}

	return nil
}

func isHTML(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "text/html" || media == "application/xhtml+xml")
}

// readFailure returns the message of an error response: from Prometheus's JSON, the title of a page, or the first line.
func readFailure(resp *http.Response, body io.Reader) (errorType, message string) {
	raw, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if err != nil && len(raw) == 0 {
		return "", resp.Status
	}

	var failure struct {
		ErrorType string `json:"errorType"`
		Error     string `json:"error"`
		Message   string `json:"message"`
	}
	if json.Unmarshal(raw, &failure) == nil && failure.Error+failure.Message != "" {
		if failure.Error == "" {
			failure.Error = failure.Message
		}

		return failure.ErrorType, sanitize(failure.Error)
	}

	// Proxies answer with a page or plain text.
	text := string(raw)
	if _, after, ok := strings.Cut(text, "<title>"); ok {
		text, _, _ = strings.Cut(after, "</title>")
	}

	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if text == "" {
		text = http.StatusText(resp.StatusCode)
	}

	return "", sanitize(text)
}

// sanitize makes untrusted text safe for an error: short, without control characters.
func sanitize(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}

		return r
	}, strings.ToValidUTF8(strings.TrimSpace(text), "?"))

	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "..."
	}

	return text
}

// retryAfter reads the header of that name: seconds, or a date relative to the server's own clock.
func retryAfter(resp *http.Response) time.Duration {
	header := strings.TrimSpace(resp.Header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}

	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}

	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return 0
	}

	return max(0, at.Sub(date))
}
