// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/controlplane"
	"crane.io/crane/test/integration/harness"
)

// unfriendly is a proxy before the API server that refuses every second write, by turns with 429 and with a conflict. The
// lease and events, which are no work, are let through.
type unfriendly struct {
	url string
	// authority is that of its certificate, in PEM: clients send no token without TLS.
	authority []byte

	mu                sync.Mutex
	writes            int
	refused, accepted map[string]int // by method
}

// serveUnfriendly starts the proxy. Requests go on with the token that they come with.
func serveUnfriendly(t *testing.T) *unfriendly {
	t.Helper()
	to := control.Config()
	target, err := url.Parse(to.Host)
	if err != nil {
		t.Fatal(err)
	}
	// Without the administrator's own credentials: they would count more than the token that comes with a request.
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(to))
	if err != nil {
		t.Fatal(err)
	}
	u := &unfriendly{refused: map[string]int{}, accepted: map[string]int{}}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.FlushInterval = -1 // Watches.
	forward.Transport = transport
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		if !errors.Is(err, context.Canceled) {
			t.Logf("proxy: %v", err)
		}
		w.WriteHeader(http.StatusBadGateway)
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u.refuses(w, r) {
			return
		}
		forward.ServeHTTP(w, r)
	}))
	u.url = server.URL
	u.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return u
}

func (u *unfriendly) refuses(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/leases") || strings.Contains(r.URL.Path, "/events") ||
		strings.Contains(r.URL.Path, "reviews") {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.writes++
	if u.writes%2 == 0 {
		u.accepted[r.Method]++
		return false
	}
	u.refused[r.Method]++
	status, reason := http.StatusConflict, metav1.StatusReasonConflict
	if u.writes%4 == 1 {
		status, reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(status), Message: "refused by the test",
	})
	return true
}

// kubeconfig is one of craned for the proxy.
func (u *unfriendly) kubeconfig(t *testing.T) string {
	t.Helper()
	file, err := control.KubeconfigFor(t.Context(), "craned", controlplane.ServiceAccount("crane-system", "craned"))
	if err != nil {
		t.Fatal(err)
	}
	was, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: u.url, CertificateAuthorityData: u.authority}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: was.BearerToken}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "kubeconfig", string(text))
}

// TestEverySecondWriteRefused: with 429 and conflicts on every second write each workload has its recommendation, once, and
// its annotation, and when all is done nothing more is written.
func TestEverySecondWriteRefused(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	api := serveUnfriendly(t)
	create(t, c, deployment("shop", "web"), statefulSet("shop", "db", "postgres"), deployment("bank", "web"), rule("refused", "24h", "shop", "bank"))
	craned := startCraned(t, prom.URL(), "--kubeconfig="+api.kubeconfig(t))
	complete(t, c, "refused", "RoundCompleted")
	waitAnnotated(t, c, "shop", "web")
	waitAnnotated(t, c, "bank", "web")
	recs, err := recommendations(t.Context(), c, "refused")
	if err != nil || len(recs) != 3 {
		t.Fatalf("%d recommendations, want 3, one for each: %v", len(recs), err)
	}
	api.mu.Lock()
	refused, accepted := len(api.refused), len(api.accepted)
	t.Logf("refused %v, accepted %v", api.refused, api.accepted)
	api.mu.Unlock()
	if refused == 0 || accepted == 0 {
		t.Error("the proxy has refused nothing")
	}
	before := versions(t, c, "refused")
	eventually(t, "it is idle", func(ctx context.Context) error {
		page, err := harness.Get(ctx, "http://"+craned.metrics+"/metrics")
		if err == nil && (!containsLine(page, `workqueue_depth{controller="recommendation",name="recommendation",priority="0"} 0`) &&
			!containsLine(page, `workqueue_depth{controller="recommendation",name="recommendation"`) ||
			!containsLine(page, `controller_runtime_active_workers{controller="recommendation"} 0`)) {
			err = errors.New("it works")
		}
		return err
	})
	// What it might yet write because of a retry would come with the first one after it.
	if err := craned.Terminate(t); err != nil {
		t.Errorf("craned ended with %v", err)
	}
	after := versions(t, c, "refused")
	for key := range before {
		if strings.HasPrefix(key, "deployment/") && before[key] != after[key] || after[key] == "" {
			t.Errorf("%s was %q and is %q", key, before[key], after[key])
		}
	}
	if len(before) != len(after) {
		t.Errorf("%d objects, then %d", len(before), len(after))
	}
}

// TestSlowPrometheus: a source that needs half a minute for a query does not end a round: the round waits, writes nothing
// before it knows, and completes; craned is alive all the while.
func TestSlowPrometheus(t *testing.T) {
	c := newClient(t)
	const wait = 30 * time.Second
	var swift atomic.Bool // The queries after the first ones, or the test would take minutes.
	asked := make(chan struct{}, 100)
	slow := servePrometheusBehind(t, func(r *http.Request) {
		if swift.Load() {
			return
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-r.Context().Done():
		case <-timer.C:
		}
	})
	create(t, c, deployment("shop", "web"), rule("slow", "24h", "shop"))
	began := time.Now()
	// Only the round asks, beside readiness, which asks one question at a time.
	craned := startCraned(t, slow, "--controllers=recommendation")
	for range 2 {
		select {
		case <-asked:
		case <-time.After(bound):
			t.Fatal("no query")
		}
	}
	swift.Store(true)
	if _, err := harness.Get(t.Context(), "http://"+craned.probes+"/healthz"); err != nil {
		t.Errorf("liveness: %v", err)
	}
	if recs, err := recommendations(t.Context(), c, "slow"); err != nil || len(recs) > 0 {
		t.Errorf("recommendations before there is an answer: %v, %v", recs, err)
	}
	complete(t, c, "slow", "RoundCompleted")
	if took := time.Since(began); took < wait {
		t.Errorf("the round was over after %s, before its first query was answered", took)
	}
	recs, err := recommendations(t.Context(), c, "slow")
	if err != nil || condition(recs["shop/web"], "Ready") != "True/RecommendationReady" {
		t.Errorf("after a slow round: %v, %v", recs, err)
	}
}

// TestClockSetBack: a rule whose last round lies in the future, as it does when the clock was set back, has a round at once
// and not again until its interval is over.
func TestClockSetBack(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	create(t, c, deployment("shop", "web"), rule("clock", "24h", "shop"))
	first := startCraned(t, prom.URL())
	done := complete(t, c, "clock", "RoundCompleted")
	if err := first.Terminate(t); err != nil {
		t.Errorf("craned ended with %v", err)
	}
	eventually(t, "the last round lies in the future", func(ctx context.Context) error {
		r := &analysisv1alpha1.RecommendationRule{}
		if err := c.Get(ctx, client.ObjectKey{Name: "clock"}, r); err != nil {
			return err
		}
		future := metav1.NewTime(time.Now().Add(240 * time.Hour))
		r.Status.LastUpdateTime = &future
		return c.Status().Update(ctx, r)
	})
	second := startCraned(t, prom.URL())
	again := &analysisv1alpha1.RecommendationRule{}
	eventually(t, "a round in the present", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Name: "clock"}, again); err != nil {
			return err
		}
		if at := again.Status.LastUpdateTime; at == nil || at.After(time.Now().Add(time.Minute)) {
			return fmt.Errorf("the last round is at %v", at)
		}
		return nil
	})
	if err := second.Terminate(t); err != nil {
		t.Errorf("craned ended with %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "clock"}, again); err != nil || again.Status.RunNumber != done.Status.RunNumber+1 {
		t.Errorf("run %d after run %d, want one more; %v", again.Status.RunNumber, done.Status.RunNumber, err)
	}
}
