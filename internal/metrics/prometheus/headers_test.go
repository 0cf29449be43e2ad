// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestHeadersFile checks that headers of a file are sent, that a change takes effect with the next request and in the identity, and
// that a file that cannot be read fails the request instead of sending it for another tenant.
func TestHeadersFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "headers")
	write := func(text string) {
		t.Helper()

		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var got http.Header
	address, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		io.WriteString(w, emptyVector)
	})
	s := newSource(t, address, func(c *Config) {
		c.Headers = map[string]string{"x-scope-orgid": "default", "X-Fixed": "1"}
		c.HeadersFile = path
	})

	reader := &historyReader{queries: s.queries}
	identities := map[string]bool{}
	for _, tenant := range []string{"team-a", "team-b|team-c"} {
		write("# tenant\n\nx-scope-orgid:  " + tenant + " \r\nApi-Key: a:b=\n")
		if _, err := s.Instant(t.Context(), "up", time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}

		if got.Get("X-Scope-OrgID") != tenant || got.Get("Api-Key") != "a:b=" || got.Get("X-Fixed") != "1" || len(got.Values("X-Scope-OrgID")) != 1 {
			t.Errorf("headers %v, want X-Scope-OrgID %s, the API key and X-Fixed, each once", got, tenant)
		}
		identities[reader.Identity()] = true
	}

	if len(identities) != 2 {
		t.Errorf("identities of two tenants: %v, want 2", identities)
	}

	got = nil
	for name, text := range map[string]string{
		"no colon": "secret-value", "no name": ": secret-value", "no value": "X-Scope-OrgID:", "own header": "authorization: secret-value",
		"twice": "A: secret-value\na: 2", "control character": "A: secret-value\x01", "empty": "# nothing\n",
		"too large": "A: " + strings.Repeat("secret-value", 2000), "too many": strings.Repeat("# secret-value\n", 2000),
	} {
		write(text)
		_, err := s.Instant(t.Context(), "up", time.Unix(1, 0))
		var failure *Error
		if !errors.As(err, &failure) || failure.Kind != Denied || strings.Contains(err.Error(), "secret-value") || !strings.Contains(err.Error(), path) {
			t.Errorf("Instant with a headers file %s: error %v, want Denied with the path and without the value", name, err)
		}
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	if _, err := s.Instant(t.Context(), "up", time.Unix(1, 0)); err == nil || got != nil {
		t.Errorf("Instant without the headers file: error %v, sent %v, want an error and no request", err, got)
	}
}
