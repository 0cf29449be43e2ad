// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/internal/testbed/loopback"
)

// checkRefused checks what all failures have in common: an exit code, empty stdout, and one message that names the
// cause.
func checkRefused(t *testing.T, r result, wants ...string) {
	t.Helper()

	if r.code == 0 || r.out != "" || strings.Contains(r.errOut, "goroutine ") {
		t.Errorf("exit code %d, stdout %q, stderr %q; want a failure and nothing on stdout", r.code, r.out, r.errOut)
	}

	for _, want := range wants {
		if !strings.Contains(r.errOut, want) {
			t.Errorf("stderr %q, want it to contain %q", r.errOut, want)
		}
	}
}

// TestServersThatAreNoPrometheus: each kind is reported distinctly, with its address.
func TestServersThatAreNoPrometheus(t *testing.T) {
	crane := binary(t, "crane")
	respond := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body) // the client may have disconnected
		}
	}

	const jsonType = "application/json"
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"web page":              {respond(200, "text/html", "<!DOCTYPE html><html><body>Log in</body></html>"), "web page"},
		"login redirect":        {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, "redirect"},
		"401":                   {respond(401, "text/plain", "Unauthorized"), "401"},
		"403":                   {respond(403, "text/plain", "Forbidden"), "403"},
		"404":                   {respond(404, "text/plain", "404 page not found"), "404"},
		"500":                   {respond(500, "text/plain", "out of order"), "500"},
		"503 in HTML":           {respond(503, "text/html", "<html>upstream is away</html>"), "503"},
		"error in JSON":         {respond(422, jsonType, `{"status":"error","errorType":"execution","error":"storage is broken"}`), "storage is broken"},
		"error with status 200": {respond(200, jsonType, `{"status":"error","errorType":"execution","error":"storage is broken"}`), "storage is broken"},
		"other JSON":            {respond(200, jsonType, `{"hello":"world"}`), "status"},
		"a list":                {respond(200, jsonType, `[1,2,3]`), "JSON"},
		"a string":              {respond(200, jsonType, `"up"`), "JSON"},
		"a matrix for a vector": {respond(200, jsonType, `{"status":"success","data":{"resultType":"matrix","result":[]}}`), "matrix"},
		"a scalar":              {respond(200, jsonType, `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`), "scalar"},
		"text for a number":     {respond(200, jsonType, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"many"]}]}}`), "many"},
		"half an answer":        {respond(200, jsonType, `{"status":"success","data":{"resultType":"vec`), "unexpected"},
		"nothing":               {respond(200, jsonType, ``), "unexpected"},
		"no history":            {respond(200, jsonType, `{"status":"success","data":{"resultType":"vector","result":[]}}`), "container_cpu_usage_seconds_total"},
		"a broken gzip":         {brokenGzip, "broke off"},
		"a cut connection":      {hangUp, "check the address and the network"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			server := httptest.NewServer(c.handler)
			t.Cleanup(server.Close)
			checkRefused(t, execute(t, crane, "recommend", "--prometheus", server.URL), c.want, strings.TrimPrefix(server.URL, "http://"))
		})
	}

	t.Run("no listener", func(t *testing.T) {
		t.Parallel()

		port, err := loopback.Reserve(t.Context(), 0) // reserved, so that concurrent tests do not use it
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() {
			if err := port.Close(); err != nil {
				t.Error(err)
			}
		})

		checkRefused(t, execute(t, crane, "recommend", "--prometheus", "http://"+port.Address()), "connection refused", port.Address())
	})

	t.Run("TLS by an unknown authority", func(t *testing.T) {
		t.Parallel()

		server := httptest.NewTLSServer(respond(200, jsonType, `{}`))
		t.Cleanup(server.Close)
		checkRefused(t, execute(t, crane, "recommend", "--prometheus", server.URL), "certificate", strings.TrimPrefix(server.URL, "https://"))
	})
}

func brokenGzip(w http.ResponseWriter, _ *http.Request) {
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	_, _ = io.WriteString(z, `{"status":"success"`)
	_ = z.Close() // writes to a buffer do not fail
	w.Header().Set("Content-Encoding", "gzip")
	_, _ = w.Write(body.Bytes()[:body.Len()-12])
}

// hangUp closes the connection before a response.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		connection.Close()
	}
}

// csvOf returns a series of ten days with a daily pattern; edit may change a line, or drop it.
func csvOf(edit func(i int, line string) string) string {
	noise := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	b.WriteString("ts,value\n")

	for i := range 10 * 24 * 12 {
		v := 0.2 + 0.1*float64(i/144%2) + 0.02*noise.Float64()
		b.WriteString(edit(i, fmt.Sprintf("%d,%.6f\n", 1_699_920_000+i*300, v)))
	}

	return b.String()
}

func recommendCSV(t *testing.T, content string) result {
	t.Helper()

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "app.csv"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	return execute(t, binary(t, "crane"), "recommend", "--from", dir, "-o", "json")
}

// TestFilesWithFlaws: flaws that are tolerated lead to the result of the flawless file, or one near it.
func TestFilesWithFlaws(t *testing.T) {
	same := func(_ int, line string) string { return line }
	clean := recommendCSV(t, csvOf(same))
	if clean.code != 0 {
		t.Fatalf("the flawless file is refused, want exit code 0: %s", clean.errOut)
	}

	var want amount
	for _, a := range amounts(t, clean.out) {
		want = a
	}

	if !want.set || want.value < 0.3 || want.value > 0.5 {
		t.Fatalf("the flawless file leads to %+v, want 0.3 to 0.5 cores", want)
	}

	every := func(n int, replace string) func(int, string) string {
		return func(i int, line string) string {
			if i%n != 0 {
				return line
			}

			ts, _, _ := strings.Cut(line, ",")
			return ts + "," + replace + "\n"
		}
	}

	for name, content := range map[string]string{
		"byte order mark": "\xef\xbb\xbf" + csvOf(same),
		"CRLF":            strings.ReplaceAll(csvOf(same), "\n", "\r\n"),
		"holes": csvOf(func(i int, line string) string {
			if i%7 == 3 || i > 1000 && i < 1050 {
				return ""
			}

			return line
		}),
		"empty values":    csvOf(every(9, "")),
		"NaN":             csvOf(every(9, "NaN")),
		"infinite":        csvOf(every(9, "+Inf")),
		"negative":        csvOf(every(9, "-1")),
		"too large":       csvOf(every(9, "1e999")),
		"duplicate times": csvOf(func(_ int, line string) string { return line + line }),
		"out of order":    outOfOrder(csvOf(same)),
		"quoted": csvOf(func(_ int, line string) string {
			return strings.Replace(strings.TrimSpace(line), ",", `,"`, 1) + "\"\n"
		}),
	} {
		t.Run(name, func(t *testing.T) {
			r := recommendCSV(t, content)
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.errOut)
			}

			for _, got := range amounts(t, r.out) {
				if !near(got, want, 0.05) {
					t.Errorf("%+v, want %+v within 5 %%", got, want)
				}
			}
		})
	}
}

// outOfOrder swaps the two halves of a file.
func outOfOrder(content string) string {
	lines := strings.SplitAfter(content, "\n")
	half := len(lines) / 2
	return lines[0] + strings.Join(lines[half:], "") + strings.Join(lines[1:half], "")
}

// near reports whether amounts agree within a relative tolerance and a thousandth of a core, the precision of results.
func near(got, want amount, tolerance float64) bool {
	if got.set != want.set || got.status != want.status {
		return false
	}

	return math.Abs(got.value-want.value) <= max(want.value*tolerance, 0.0015)
}

// TestFilesThatAreBroken: one invalid file fails the command with file and line before it prints anything.
func TestFilesThatAreBroken(t *testing.T) {
	good := csvOf(func(_ int, line string) string { return line })
	for name, c := range map[string]struct{ content, want string }{
		"text in a number":  {good + "1702512300,0.5 cores\n", "app.csv:2882"},
		"thousands":         {good + "1702512300,1,024\n", "app.csv:2882"},
		"hexadecimal":       {good + "1702512300,0x10\n", "app.csv:2882"},
		"text in a time":    {good + "yesterday,1\n", "app.csv:2882"},
		"milliseconds":      {good + "1702512300000,1\n", "milliseconds"},
		"one field":         {good + "1702512300\n", "app.csv:2882"},
		"no samples":        {"ts,value\n", "app.csv"},
		"only NaN":          {"ts,value\n1702512300,NaN\n", "app.csv"},
		"another header":    {"time,cpu\n1702512300,1\n", "app.csv"},
		"empty":             {"", "app.csv"},
		"a year of nothing": {"ts,value\n0,1\n1,1\n2,1\n1702512300,1\n", "app.csv:5"},
		"binary":            {"ts,value\n\x00\x01\x02", "app.csv:2"},
	} {
		t.Run(name, func(t *testing.T) {
			r := recommendCSV(t, c.content)
			if r.code == 3 { // nothing to recommend: the output is a whole report without a number
				if got := amounts(t, r.out); len(got) > 0 || !strings.Contains(r.errOut, c.want) {
					t.Errorf("%v, stderr %q; want no number and %q", got, r.errOut, c.want)
				}

				return
			}

			checkRefused(t, r, c.want)
		})
	}
}
