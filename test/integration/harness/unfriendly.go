// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"crane.io/crane/internal/testbed/controlplane"
)

// Unfriendly is a proxy in front of an API server that rejects every second write, alternately with 429 and with a
// conflict. Leases and events pass.
type Unfriendly struct {
	control *controlplane.ControlPlane
	url     string
	// authority is the PEM-encoded CA of its certificate: clients send no token without TLS.
	authority []byte

	// choose returns the fault of the nth write of an object by a method, starting at 1; nil alternates faults on every
	// second write.
	choose func(method, path string, n int) Fault
	// stalled holds back all requests.
	stalled atomic.Bool

	mu                sync.Mutex
	writes            int
	refused, accepted map[string]int // by method
	byPath            map[string]int // writes by method and path
}

// Fault is a simulated failure of a write.
type Fault int

// Faults. None passes a write; Lost passes it and drops the response.
const (
	None Fault = iota
	Busy
	Overtaken
	Failing
	Unavailable
	Lost
)

// ServeUnfriendly starts the proxy until the end of the test. It forwards the tokens of requests.
func ServeUnfriendly(t *testing.T, control *controlplane.ControlPlane) *Unfriendly {
	t.Helper()
	return ServeFaults(t, control, nil)
}

// ServeFaults starts a proxy that injects the faults that choose returns for the nth write of each object, starting at
// 1, independent of other writes.
func ServeFaults(t *testing.T, control *controlplane.ControlPlane, choose func(method, path string, n int) Fault) *Unfriendly {
	t.Helper()

	to := control.Config()
	target, err := url.Parse(to.Host)
	if err != nil {
		t.Fatal(err)
	}

	// The administrator's credentials would take precedence over the token of a request.
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(to))
	if err != nil {
		t.Fatal(err)
	}

	u := &Unfriendly{
		control:  control,
		choose:   choose,
		refused:  map[string]int{},
		accepted: map[string]int{},
		byPath:   map[string]int{},
	}

	forward := httputil.NewSingleHostReverseProxy(target)
	forward.FlushInterval = -1 // for watches
	forward.Transport = transport
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		if !errors.Is(err, context.Canceled) {
			t.Logf("proxy: %v", err)
		}
		w.WriteHeader(http.StatusBadGateway)
	}

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u.stalled.Load() {
			_, _ = io.Copy(io.Discard, r.Body) // The end of a connection is noticed only after its body.
			<-r.Context().Done()
			return
		}

		switch fault := u.judge(r); fault {
		case None:
			forward.ServeHTTP(w, r)
		case Lost:
			forward.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			refuse(w, fault)
		}
	}))

	u.url = server.URL
	u.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})

	return u
}

// Stall leaves new requests without an answer until their clients give up, as an overloaded API server does. Open watches continue.
func (u *Unfriendly) Stall() { u.stalled.Store(true) }

// judge returns and counts the fault of a request.
func (u *Unfriendly) judge(r *http.Request) Fault {
	// Leases, events and reviews are left alone: a lost lease would end the process under test.
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/leases") || strings.Contains(r.URL.Path, "/events") ||
		strings.Contains(r.URL.Path, "reviews") {
		return None
	}

	u.mu.Lock()
	defer u.mu.Unlock()

	u.writes++
	u.byPath[r.Method+" "+r.URL.Path]++
	fault := None
	switch {
	case u.choose != nil:
		fault = u.choose(r.Method, r.URL.Path, u.byPath[r.Method+" "+r.URL.Path])
	case u.writes%4 == 1:
		fault = Busy
	case u.writes%4 == 3:
		fault = Overtaken
	}

	if fault == None {
		u.accepted[r.Method]++
	} else {
		u.refused[r.Method]++
	}

	return fault
}

func refuse(w http.ResponseWriter, fault Fault) {
	status := http.StatusConflict
	reason := metav1.StatusReasonConflict
	switch fault {
	case Busy:
		status = http.StatusTooManyRequests
		reason = metav1.StatusReasonTooManyRequests
		w.Header().Set("Retry-After", "1")

	case Failing:
		status = http.StatusInternalServerError
		reason = metav1.StatusReasonInternalError
	case Unavailable:
		status = http.StatusServiceUnavailable
		reason = metav1.StatusReasonServiceUnavailable
	default:
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Reason:   reason,
		Code:     int32(status),
		Message:  "refused by the test",
	})
}

// Writes returns the number of writes whose path has the suffix, with any result.
func (u *Unfriendly) Writes(suffix string) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()

	for path, writes := range u.byPath {
		if strings.HasSuffix(path, suffix) {
			n += writes
		}
	}

	return n
}

// Check fails the test unless some writes were rejected and some accepted.
func (u *Unfriendly) Check(t *testing.T) {
	t.Helper()

	u.mu.Lock()
	defer u.mu.Unlock()

	t.Logf("refused %v, accepted %v", u.refused, u.accepted)
	if len(u.refused) == 0 || len(u.accepted) == 0 {
		t.Errorf("the proxy refused %d kinds of requests and accepted %d, want some of each", len(u.refused), len(u.accepted))
	}
}

// Kubeconfig writes a kubeconfig of a user for the proxy.
func (u *Unfriendly) Kubeconfig(t *testing.T, name string, user controlplane.User) string {
	t.Helper()

	file, err := u.control.KubeconfigFor(t.Context(), name, user)
	if err != nil {
		t.Fatal(err)
	}

	was, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}

	// Only a token can pass through the proxy; a client certificate would stay with it.
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: u.url, CertificateAuthorityData: u.authority}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: was.BearerToken}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}

	config.CurrentContext = "x"
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}
