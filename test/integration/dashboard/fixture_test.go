// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"crane.io/crane/internal/cli"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/test/integration/harness"
)

// fixture is a running server with the queries that it sent to Prometheus and its log.
type fixture struct {
	t       *testing.T
	address string

	mu      sync.Mutex
	queries []string
	log     bytes.Buffer
}

// Write implements io.Writer for the log.
func (f *fixture) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.log.Write(p)
}

func (f *fixture) logged() string {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.log.String()
}

// takeQueries returns the queries since the last call.
func (f *fixture) takeQueries() []string {
	f.mu.Lock()
	defer f.mu.Unlock()

	out := f.queries
	f.queries = nil
	return out
}

// serve starts the server with the rights of the chart's ServiceAccount, until the test ends.
func serve(t *testing.T) *fixture {
	t.Helper()

	f := &fixture{t: t}
	prometheus := harness.ServeHistory(t, history, promserver.Options{Middleware: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if query := r.FormValue("query"); query != "" {
				f.mu.Lock()
				f.queries = append(f.queries, query)
				f.mu.Unlock()
			}

			next.ServeHTTP(w, r)
		})
	}})

	kubeconfig, err := control.KubeconfigFor(t.Context(), "dashboard", controlplane.ServiceAccount("crane-system", "crane-dashboard"))
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	printed, out := io.Pipe()
	cmd := cli.NewCommand(cli.Streams{In: strings.NewReader(""), Out: out, Err: f}, "crane")
	cmd.SetArgs([]string{"dashboard", "serve", "--kubeconfig", kubeconfig, "--prometheus", prometheus.URL(), "--listen", "127.0.0.1:0"})
	done := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = out.CloseWithError(io.EOF)
		done <- err
	}()

	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	line, err := bufio.NewReader(printed).ReadString('\n')
	if err != nil {
		t.Fatalf("the server printed %q, %v, want its address: log %s", line, err, f.logged())
	}

	f.address = addressIn(line)
	return f
}

// addressIn returns the address at the end of the line that the server prints.
func addressIn(line string) string {
	_, address, _ := strings.Cut(strings.TrimSpace(line), "https://")
	return "https://" + address
}

// person is the browser of a user.
type person struct {
	*fixture
	client *http.Client
	// bearer is sent with each request, as a proxy does.
	bearer, csrf string
}

func (f *fixture) browser() *person {
	f.t.Helper()

	jar, err := cookiejar.New(nil)
	if err != nil {
		f.t.Fatal(err)
	}

	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // The certificate is made at the start.
	f.t.Cleanup(transport.CloseIdleConnections)
	return &person{fixture: f, client: &http.Client{Jar: jar, Transport: transport, Timeout: time.Minute}}
}

func token(t *testing.T, namespace, name string) string {
	t.Helper()

	config, err := control.ConfigFor(t.Context(), controlplane.ServiceAccount(namespace, name))
	if err != nil {
		t.Fatal(err)
	}

	return config.BearerToken
}

// login returns a browser with the session of a service account.
func (f *fixture) login(namespace, name string) *person {
	f.t.Helper()

	p := f.browser()
	var session contract.Session
	if status := p.post(contract.PathLogin, contract.LoginRequest{Token: token(f.t, namespace, name)}, &session); status != http.StatusOK || !session.Authenticated {
		f.t.Fatalf("login of %s: status %d, %+v, want 200", name, status, session)
	}

	if want := "system:serviceaccount:" + namespace + ":" + name; session.User != want {
		f.t.Fatalf("logged in as %s, want %s", session.User, want)
	}

	p.csrf = session.CSRFToken
	return p
}

func (p *person) get(path string, into any) int { return p.do(http.MethodGet, path, nil, into) }

func (p *person) post(path string, body, into any) int {
	return p.do(http.MethodPost, path, body, into)
}

func (p *person) do(method, path string, body, into any, headers ...string) int {
	p.t.Helper()

	content, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}

	r, err := http.NewRequestWithContext(p.t.Context(), method, p.address+contract.Prefix+path, bytes.NewReader(content))
	if err != nil {
		p.t.Fatal(err)
	}

	r.Header.Set("Content-Type", "application/json")
	if p.csrf != "" {
		r.Header.Set(contract.CSRFHeader, p.csrf)
	}
	if p.bearer != "" {
		r.Header.Set("Authorization", "Bearer "+p.bearer)
	}

	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}

	response, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()

	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}

	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			p.t.Fatalf("%s %s: status %d, %v, want JSON: %s", method, path, response.StatusCode, err, text)
		}
	}

	return response.StatusCode
}

// namespaces returns the namespaces of the rows of a worklist.
func (p *person) namespaces() []string {
	p.t.Helper()

	var list contract.Worklist
	if status := p.get(contract.PathWorklist, &list); status != http.StatusOK {
		p.t.Fatalf("worklist: status %d, want 200", status)
	}

	var out []string
	for _, row := range list.Rows {
		out = append(out, row.Namespace)
	}

	slices.Sort(out)
	return out
}
