// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/kube/pki"
)

// chaosJump is the greatest jump of craned's clock in either direction.
const chaosJump = 90 * time.Second

// chaosBinaries returns a directory with the built binaries and with a craned whose clock has an offset, which is read from a file.
func chaosBinaries(t *testing.T) (dir, offsetFile string) {
	t.Helper()

	built := filepath.Dir(binary(t, "playground"))
	dir = t.TempDir()
	offsetFile = filepath.Join(t.TempDir(), "offset")

	for _, name := range []string{"controlplane", "crane-scheduler", "metric-adapter", "crane-agent"} {
		path, err := filepath.Abs(filepath.Join(built, name))
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "craneclockoffset", "-o", dir+"/", "crane.io/crane/cmd/craned")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building craned: %v\n%s", err, out)
	}

	t.Setenv("CRANE_CLOCK_OFFSET_FILE", offsetFile)
	return dir, offsetFile
}

// inject starts a random fault that ends before the end.
func (c *chaos) inject(t *testing.T, end time.Time) {
	t.Helper()

	component := []string{"craned", "craned", "crane-scheduler", "metric-adapter", "crane-agent"}[c.random.IntN(5)]
	certificate := chaosCertificates[c.random.IntN(len(chaosCertificates))]
	lasts := time.Duration(1+c.random.IntN(20)) * time.Second

	faults := []struct {
		name   string
		inject func() (repair func())
	}{
		{"kill " + component, func() func() { return c.signal(t, component, syscall.SIGKILL) }},
		{"kill " + component, func() func() { return c.signal(t, component, syscall.SIGKILL) }},
		{"pause " + component, func() func() { return c.signal(t, component, syscall.SIGSTOP) }},
		{"full disk of " + component, func() func() { return c.fillDisk(t, component) }},
		{"503 of Prometheus", func() func() { return c.proxy.fail(failing) }},
		{"slow Prometheus", func() func() { return c.proxy.fail(slow) }},
		{"no Prometheus", func() func() { return c.proxy.fail(cut) }},
		{"clock jump of craned", func() func() { return c.jump(t) }},
		{"expired " + certificate, func() func() { return c.expireCertificate(t, certificate) }},
		{"rush on agent-01", func() func() { return c.rush(t) }},
		{"crane pause", func() func() { return c.pause(t) }},
	}

	fault := faults[c.random.IntN(len(faults))]
	c.fault = fault.inject()
	c.until = time.Now().Add(lasts)
	if c.until.After(end) {
		c.until = end
	}
	if c.counts == nil {
		c.counts = map[string]int{}
	}

	c.counts[fault.name]++
	if c.fault != nil {
		fault.name += " for " + lasts.String()
	}

	t.Logf("%s: %s", time.Now().UTC().Format(time.TimeOnly), fault.name)
}

// repair ends a fault whose time is over.
func (c *chaos) repair(t *testing.T, now time.Time) {
	t.Helper()

	if c.fault != nil && now.After(c.until) {
		c.fault()
		c.fault = nil
	}
}

// signal sends a signal to a process of a component, unless the supervisor has not restarted it yet.
func (c *chaos) signal(t *testing.T, component string, signal syscall.Signal) func() {
	t.Helper()

	pid := c.pid(t, component)
	if pid == 0 {
		return nil
	}

	_ = syscall.Kill(pid, signal) // It may have ended meanwhile.
	if signal != syscall.SIGSTOP {
		return nil
	}

	return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
}

// fillDisk lets every write of a component to a file fail.
func (c *chaos) fillDisk(t *testing.T, component string) func() {
	t.Helper()

	pid := c.pid(t, component)
	if pid == 0 {
		return nil
	}

	limit := func(bytes uint64) {
		err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil)
		if err != nil && err != unix.ESRCH {
			t.Errorf("limiting the size of files of %s: %v", component, err)
		}
	}

	limit(0)
	return func() { limit(unix.RLIM_INFINITY) }
}

// jump changes the clock of craned by up to chaosJump.
func (c *chaos) jump(t *testing.T) func() {
	t.Helper()

	set := func(offset time.Duration) {
		c.jumped = time.Now()
		temporary := c.offsetFile + ".new"
		err := os.WriteFile(temporary, []byte(offset.String()), 0o600)
		if err == nil {
			err = os.Rename(temporary, c.offsetFile)
		}
		if err != nil {
			t.Error(err)
		}
	}

	set(time.Duration(c.random.Int64N(int64(2*chaosJump))) - chaosJump)
	return func() { set(0) }
}

// chaosCertificates are the Secrets with the serving certificates of craned's webhooks and of metric-adapter.
var chaosCertificates = []string{"craned-certificates", "metric-adapter-certificate"}

// expireCertificate replaces a serving certificate with one that ended.
func (c *chaos) expireCertificate(t *testing.T, name string) func() {
	t.Helper()

	secret := c.certificates(t, name)
	past := func() time.Time { return time.Now().Add(-48 * time.Hour) }

	first, _, _ := strings.Cut(string(secret.Data["ca.crt"]), "-----END CERTIFICATE-----")
	authority, err := pki.ParseAuthority(pki.Pair{CertPEM: []byte(first + "-----END CERTIFICATE-----\n"), KeyPEM: secret.Data["ca.key"]}, past)
	if err != nil {
		t.Fatalf("Secret %s: %v", secret.Name, err)
	}

	pair, err := authority.IssueServingFor(time.Hour, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}

	c.kubectl(t, "patch", "secret", secret.Name, "-n", secret.Namespace, "--type=merge", "-p", fmt.Sprintf(`{"data": {"tls.crt": %q, "tls.key": %q}}`,
		base64.StdEncoding.EncodeToString(pair.CertPEM), base64.StdEncoding.EncodeToString(pair.KeyPEM)))
	return nil
}

// certificates returns a Secret with certificates.
func (c *chaos) certificates(t *testing.T, name string) corev1.Secret {
	t.Helper()

	var secret corev1.Secret
	eventually(t, "Secret with certificates", func() error {
		out := c.kubectl(t, "get", "secret", name, "-n", "crane-system", "-o", "json", "--ignore-not-found")
		if out == "" {
			return fmt.Errorf("no Secret")
		}

		return json.Unmarshal([]byte(out), &secret)
	})

	return secret
}

// pauseDelay bounds the time until all processes honor a pause.
const pauseDelay = 10 * time.Second

// pause stops all writes of Crane until it ends.
func (c *chaos) pause(t *testing.T) func() {
	t.Helper()

	c.kubectl(t, "create", "configmap", "crane-pause", "-n", "crane-system", "--from-literal=paused=true")
	c.paused = time.Now()
	return func() {
		c.paused = time.Time{}
		c.kubectl(t, "delete", "configmap", "crane-pause", "-n", "crane-system")
	}
}

// stopped reports whether all processes honor a pause since a time.
func (c *chaos) stopped(since time.Time) bool {
	return !c.paused.IsZero() && since.After(c.paused.Add(pauseDelay))
}

// rush fills the node of the agent until it ends.
func (c *chaos) rush(t *testing.T) func() {
	t.Helper()

	scale := func(replicas string) {
		c.kubectl(t, "scale", "deployment", "rush", "-n", "shop", "--replicas", replicas)
	}
	scale("1")

	return func() { scale("0") }
}

// pid returns the process of a component of this playground; 0 if none runs.
func (c *chaos) pid(t *testing.T, component string) int {
	t.Helper()

	for _, p := range processes(t, c.state) {
		if program, _, _ := strings.Cut(p.line, " "); filepath.Base(program) == component {
			return p.pid
		}
	}

	return 0
}

// faultProxy is between craned and Prometheus.
type faultProxy struct {
	url    string
	target atomic.Pointer[httputil.ReverseProxy]
	mode   atomic.Int32
	// requests counts requests, faults included.
	requests atomic.Int64
}

// Modes of a faultProxy.
const (
	passing = iota
	failing // status 503
	slow    // a delay of 3 s
	cut     // connections are closed
)

func newFaultProxy(t *testing.T) *faultProxy {
	t.Helper()

	p := &faultProxy{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		target := p.target.Load()
		mode := p.mode.Load()
		switch {
		case target == nil || mode == failing:
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		case mode == cut:
			panic(http.ErrAbortHandler)
		case mode == slow:
			select {
			case <-time.After(3 * time.Second):
			case <-r.Context().Done():
			}
		}

		target.ServeHTTP(w, r)
	}))

	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	p.url = server.URL

	return p
}

// forward sets the address of Prometheus.
func (p *faultProxy) forward(address string) error {
	to, err := url.Parse(address)
	if err != nil {
		return err
	}

	target := httputil.NewSingleHostReverseProxy(to)
	target.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
	p.target.Store(target)

	return nil
}

// fail changes the answers of the proxy and returns what ends that.
func (p *faultProxy) fail(mode int32) func() {
	p.mode.Store(mode)
	return func() { p.mode.Store(passing) }
}
