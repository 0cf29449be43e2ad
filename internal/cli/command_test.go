// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/historyserver"
)

// runCrane runs the command line in an empty environment.
func runCrane(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()

	for _, name := range []string{historyserver.EnvAddress, historyserver.EnvUsername, historyserver.EnvPassword, historyserver.EnvToken} {
		t.Setenv(name, "")
	}

	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var stdout, stderr bytes.Buffer
	code = Main(append([]string{"crane"}, args...), strings.NewReader(""), &stdout, &stderr)

	return code, stdout.String(), stderr.String()
}

// fixtureSeriesDir returns a directory with a constant series of 8 days, a series of one day and a text file.
func fixtureSeriesDir(t *testing.T) string {
	t.Helper()

	dir := t.TempDir()
	for name, days := range map[string]int{"steady": 8, "young": 1} {
		var b strings.Builder
		b.WriteString("ts,value\n")

		for i := range days * 24 * 12 {
			fmt.Fprintf(&b, "%d,0.5\n", 1_699_920_000+i*300)
		}

		if err := os.WriteFile(filepath.Join(dir, name+".csv"), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}

	return dir
}

func TestRecommendFromFiles(t *testing.T) {
	code, out, errOut := runCrane(t, "recommend", "--from", fixtureSeriesDir(t), "-o", "json")
	if code != exitOK {
		t.Fatalf("recommend --from: exit %d, want %d: %s", code, exitOK, errOut)
	}

	if n := strings.Count(errOut, "\n"); n != 1 || !strings.Contains(errOut, "notes.txt") {
		t.Errorf("stderr is %q, want one line on notes.txt", errOut)
	}

	var r jsonReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}

	if r.Schema != jsonSchema || len(r.Workloads) != 2 || r.Workloads[0].Name != "steady" || r.Workloads[1].Name != "young" {
		t.Fatalf("recommend --from printed %s\nwant the workloads steady and young", out)
	}

	steady := r.Workloads[0].Containers[0]
	if steady.Memory != nil || steady.CPU == nil || steady.CPU.Recommended == nil {
		t.Fatalf("recommend --from printed %s\nwant a recommendation of CPU alone for steady", out)
	}

	// 0.5 cores plus margin.
	if v := steady.CPU.Recommended.Request.Value; v < 0.5 || v > 0.65 {
		t.Errorf("recommendation for a constant usage of 0.5 cores is %v, want 0.5 to 0.65", v)
	}
	if len(steady.CPU.Reasons) == 0 || steady.CPU.Evidence.Samples != 8*24*12 {
		t.Errorf("steady has %+v, want reasons and %d samples", steady.CPU, 8*24*12)
	}
	if young := r.Workloads[1]; young.State != "Learning" || young.Containers[0].CPU.Recommended != nil {
		t.Errorf("recommendation from one day of history = %+v, want Learning without a number", young)
	}
}

// TestShorterHistory checks that --history lowers the minimum length of the history.
func TestShorterHistory(t *testing.T) {
	code, out, errOut := runCrane(t, "recommend", "--from", fixtureSeriesDir(t), "-o", "json", "--history", "1d")
	if code != exitOK || strings.Contains(out, `"Learning"`) {
		t.Errorf("recommend --history 1d: exit %d, %s, want no workload to be learning:\n%s", code, errOut, out)
	}
}

// TestRecommendFromTraces checks that every production trace has a recommendation.
func TestRecommendFromTraces(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "shared", "traces")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the traces are not available:", err)
	}

	code, out, errOut := runCrane(t, "recommend", "--from", dir, "-o", "json")
	if code != exitOK {
		t.Fatalf("recommend of the traces: exit %d, want %d: %s", code, exitOK, errOut)
	}

	var r jsonReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}

	if len(r.Workloads) != 8 {
		t.Fatalf("%d workloads, want 8", len(r.Workloads))
	}

	for i, w := range r.Workloads {
		if want := fmt.Sprintf("workload-%d", i); w.Name != want || w.State != "Ready" {
			t.Errorf("%s is %s, want %s to be Ready", w.Name, w.State, want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	empty := t.TempDir()
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "a.csv"), []byte("ts,value\n600,abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no source", []string{"recommend"}, exitUsage, "--prometheus URL"},
		{"unknown flag", []string{"recommend", "--frm", "x"}, exitUsage, "unknown flag"},
		{"unknown command", []string{"frobnicate"}, exitUsage, "unknown command"},
		{"argument", []string{"recommend", "web"}, exitUsage, "unknown command"},
		{"bad output", []string{"recommend", "--from", empty, "-o", "xml"}, exitUsage, "--output"},
		{"bad resource", []string{"recommend", "--from", empty, "--resource", "gpu"}, exitUsage, "--resource"},
		{"bad history", []string{"recommend", "--from", empty, "--history", "soon"}, exitUsage, "--history"},
		{"no history", []string{"recommend", "--from", empty, "--history", "0d"}, exitUsage, "--history"},
		{"too much history", []string{"recommend", "--from", empty, "--history", "999d"}, exitUsage, "--history 999d: must be above 0 and at most 366d"},
		{"bad policy", []string{"recommend", "--from", empty, "--policy", "brave"}, exitUsage, "default"},
		{"both sources", []string{"recommend", "--from", empty, "--prometheus", "http://x"}, exitUsage, "--prometheus cannot be combined"},
		{"resource with Prometheus", []string{"recommend", "--prometheus", "http://x", "--resource", "cpu"}, exitUsage, "--resource applies to --from"},
		{"all and one namespace", []string{"recommend", "--prometheus", "http://x", "-A", "-n", "a"}, exitUsage, "mutually exclusive"},
		{"no URL", []string{"recommend", "--prometheus", "localhost"}, exitUsage, "http://"},
		{"two credentials", []string{"recommend", "--prometheus", "http://x", "--prometheus-token-file", "a", "--prometheus-username", "b"}, exitUsage, "at most one"},
		{"bad header", []string{"recommend", "--prometheus", "http://x", "--prometheus-header", "a"}, exitUsage, "Name: value"},
		{"missing directory", []string{"recommend", "--from", filepath.Join(empty, "none")}, exitFailure, "no such file"},
		{"broken file", []string{"recommend", "--from", broken}, exitFailure, `a.csv:2: value "abc" is not a number`},
		{"empty directory", []string{"recommend", "--from", empty}, exitNoResult, "no workload was found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, errOut := runCrane(t, c.args...)
			if code != c.code || !strings.Contains(errOut, c.want) {
				t.Errorf("exit %d, want %d; stderr %q, want %q in it", code, c.code, errOut, c.want)
			}
		})
	}
}

// TestUnusablePrometheus checks that the error names the address and the reason.
func TestUnusablePrometheus(t *testing.T) {
	answer := func(status int, contentType, body string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}))

		t.Cleanup(server.Close)
		return server.URL
	}

	for _, c := range []struct{ name, url, want string }{
		{"unreachable", "http://127.0.0.1:1", "connection refused"},
		{"no rights", answer(http.StatusUnauthorized, "text/plain", "Unauthorized"), "status 401"},
		{"HTML", answer(http.StatusOK, "text/html", "<html><body>Login</body></html>"), "a web page instead of JSON"},
		{"wrong path", answer(http.StatusNotFound, "text/plain", "404 page not found"), "no Prometheus API"},
		{"empty", answer(http.StatusOK, "application/json", `{"status":"success","data":{"resultType":"vector","result":[]}}`), "container_cpu_usage_seconds_total"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errOut := runCrane(t, "recommend", "--prometheus", c.url)
			if code != exitFailure || !strings.Contains(errOut, c.want) || !strings.Contains(errOut, c.url) || out != "" {
				t.Errorf("exit %d, stdout %q, stderr %q; want %q", code, out, errOut, c.want)
			}
		})
	}
}

func TestVersionAndPlugin(t *testing.T) {
	if code, out, _ := runCrane(t, "version"); code != exitOK || !strings.HasPrefix(out, "crane ") {
		t.Errorf("version: exit %d with %q, want %d with a line that begins with crane", code, out, exitOK)
	}

	var out bytes.Buffer
	if code := Main([]string{"/usr/local/bin/kubectl-crane", "recommend", "--help"}, strings.NewReader(""), &out, &out); code != exitOK {
		t.Fatalf("recommend --help: exit %d, want %d: %s", code, exitOK, out.String())
	}

	if !strings.Contains(out.String(), "kubectl crane recommend [flags]") {
		t.Errorf("help of the plugin lacks its name, want kubectl crane recommend in\n%s", out.String())
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv(historyserver.EnvAddress, "http://env")
	t.Setenv(historyserver.EnvToken, "t")
	t.Setenv(historyserver.EnvUsername, "u")
	t.Setenv(historyserver.EnvPassword, "p")

	for _, c := range []struct {
		name string
		p    historyserver.Server
		want historyserver.Server
	}{
		{"all from environment", historyserver.Server{}, historyserver.Server{Address: "http://env", Token: "t"}},
		{"flag wins", historyserver.Server{Address: "http://flag"}, historyserver.Server{Address: "http://flag", Token: "t"}},
		{"password file", historyserver.Server{Username: "me", PasswordFile: "f"}, historyserver.Server{Address: "http://env", Username: "me", PasswordFile: "f"}},
		{"password for a user", historyserver.Server{Username: "me"}, historyserver.Server{Address: "http://env", Username: "me", Password: "p"}},
		{"token file", historyserver.Server{TokenFile: "f"}, historyserver.Server{Address: "http://env", TokenFile: "f"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.p.Complete()
			if fmt.Sprintf("%+v", c.p) != fmt.Sprintf("%+v", c.want) {
				t.Errorf("got %+v, want %+v", c.p, c.want)
			}
		})
	}
}

func TestCompletePolicy(t *testing.T) {
	const day = 24 * time.Hour
	for history, want := range map[string]time.Duration{"": 14 * day, "7d": 7 * day, "36h": 2 * day} {
		o := &recommendOptions{policyName: "default", history: history}
		if err := o.complete(); err != nil {
			t.Fatal(err)
		}

		if o.historyLength != want {
			t.Errorf("history length for --history %q: %s, want %s", history, o.historyLength, want)
		}
	}
}

func TestMissingRequired(t *testing.T) {
	cpu := metrics.MetricPresence{Metric: "cpu", Required: true}
	memory := metrics.MetricPresence{Metric: "memory", Required: true}

	present := cpu
	present.Series = 3
	if missing, none := historyserver.MissingRequired(metrics.SourceReport{Metrics: []metrics.MetricPresence{present, memory, {Metric: "nice"}}}); len(missing) != 1 || none {
		t.Errorf("CPU only: missing %v, none %t; want memory missing and none false", missing, none)
	}
	if missing, none := historyserver.MissingRequired(metrics.SourceReport{Metrics: []metrics.MetricPresence{cpu, memory}}); len(missing) != 2 || !none {
		t.Errorf("MissingRequired without metrics = %v, none %t, want both metrics and true", missing, none)
	}
}
