// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestStops: writes to objects that are not Crane's are stopped, everything that Crane needs to report and to lead is not.
func TestStops(t *testing.T) {
	s := New(nil, "crane-system", clock.RealClock{})
	for request, want := range map[string]bool{
		"GET /apis/apps/v1/namespaces/shop/deployments/web":                        false,
		"PATCH /apis/apps/v1/namespaces/shop/deployments/web":                      true,
		"PATCH /apis/apps/v1/namespaces/shop/deployments/web?dryRun=All":           false,
		"PATCH /apis/apps/v1/namespaces/shop/deployments/web/scale":                true,
		"POST /api/v1/namespaces/shop/pods/web-1/eviction":                         true,
		"PATCH /api/v1/namespaces/shop/pods/web-1/resize":                          true,
		"PATCH /api/v1/nodes/one":                                                  true,
		"PATCH /api/v1/nodes/one/status":                                           true,
		"PATCH /api/v1/namespaces/shop":                                            true,
		"POST /apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers":       true,
		"DELETE /apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web": true,
		"PATCH /k8s/clusters/c-1/apis/apps/v1/namespaces/shop/deployments/web":     true,
		"PATCH /nonsense": true,
		"PATCH /apis/analysis.crane.io/v1alpha1/namespaces/shop/recommendations/x/status": false,
		"PATCH /apis/evil.notcrane.io/v1/namespaces/shop/things/x":                        true,
		"PUT /apis/coordination.k8s.io/v1/namespaces/crane-system/leases/craned":          false,
		"POST /apis/events.k8s.io/v1/namespaces/shop/events":                              false,
		"POST /api/v1/namespaces/shop/events":                                             false,
		"PUT /api/v1/namespaces/crane-system/configmaps/oom-record":                       false,
		"POST /apis/authentication.k8s.io/v1/tokenreviews":                                false,
		"PATCH /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/crane": false,
	} {
		method, url, _ := strings.Cut(request, " ")
		if got := s.stops(httptest.NewRequestWithContext(t.Context(), method, url, http.NoBody)); got != want {
			t.Errorf("%s: %v, want %v", request, got, want)
		}
	}
}

func configMap(paused string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: ConfigMapName}, Data: map[string]string{KeyPaused: paused, KeyReason: "incident 7"},
	}
}

// TestWrap checks that the transport refuses writes while the ConfigMap pauses Crane, and sends them otherwise.
func TestWrap(t *testing.T) {
	api := fake.NewClientset()
	watching := make(chan struct{}) // The fake API server loses what changes between a list and its watch.
	api.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
		w, err := api.Tracker().Watch(corev1.SchemeGroupVersion.WithResource("configmaps"), "crane-system")
		close(watching)
		return true, w, err
	})

	s := New(api, "crane-system", clock.RealClock{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	defer func() { cancel(); <-done }()

	sent := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sent++
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"one"}}`))
	}))
	defer server.Close()

	clients, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, WrapTransport: s.Wrap})
	if err != nil {
		t.Fatal(err)
	}

	write := func() error {
		_, err := clients.CoreV1().Nodes().Update(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.UpdateOptions{})
		return err
	}

	if err := write(); err != nil {
		t.Fatal(err)
	}

	<-watching
	becomes := func(paused bool) {
		err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return s.Paused() == paused, nil })
		if err != nil {
			t.Errorf("Paused does not become %t: %v, want it to", paused, err)
		}
	}

	maps := api.CoreV1().ConfigMaps("crane-system")
	for _, value := range []string{"true", "yes", "False", "", "TRUE"} {
		_ = maps.Delete(ctx, ConfigMapName, metav1.DeleteOptions{})
		becomes(false) // Otherwise the state of the deleted ConfigMap is taken for that of the next one.

		if _, err := maps.Create(ctx, configMap(value), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		want := value != "False" && value != ""
		becomes(want)

		before := sent
		err := write()
		if paused := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "incident 7"); paused != want || (sent == before) != want || !want && err != nil {
			t.Errorf("paused %q: %v, %d writes were sent, want them refused: %t", value, err, sent-before, want)
		}
	}
}

// TestWrap_UnknownState: without an answer about the ConfigMap a write waits, and is sent then.
func TestWrap_UnknownState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil, "crane-system", clock.RealClock{})
		sent := false
		transport := s.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
			sent = true
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}))
		began := time.Now()

		resp, err := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/api/v1/nodes/one", http.NoBody))
		if err != nil {
			t.Fatal(err)
		}

		resp.Body.Close()
		if waited := time.Since(began); !sent || waited != firstAnswer {
			t.Errorf("the first write was sent: %t, after %s, want it after %s", sent, waited, firstAnswer)
		}

		began = time.Now()
		if resp, err = transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/api/v1/nodes/one", http.NoBody)); err != nil {
			t.Fatal(err)
		}

		resp.Body.Close()
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the second write waited for %s, want no wait", waited)
		}
	})
}

// start runs a switch until the test ends.
func start(t *testing.T, api *fake.Clientset, clk *clocktesting.FakeClock) *Switch {
	t.Helper()

	s := New(api, "crane-system", clk)
	if !s.Stopped() || s.Check(nil) == nil {
		t.Error("changes are permitted before the start, want them stopped")
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-done })

	return s
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()

	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return check(), nil })
	if err != nil {
		t.Fatalf("waiting until %s: %v, want it within a minute", what, err)
	}
}

// TestStopped checks that changes that do not pass the transport are stopped until the ConfigMap is read, and from then on while it pauses
// Crane.
func TestStopped(t *testing.T) {
	for name, test := range map[string]struct {
		configMap *corev1.ConfigMap
		want      bool
	}{
		"none": {nil, false}, "paused": {configMap("true"), true}, "resumed": {configMap("false"), false},
	} {
		api := fake.NewClientset()
		if test.configMap != nil {
			api = fake.NewClientset(test.configMap)
		}

		s := start(t, api, clocktesting.NewFakeClock(time.Unix(0, 0))) // which does not run
		eventually(t, name, func() bool { return s.Check(nil) == nil })

		if s.Stopped() != test.want {
			t.Errorf("%s: stopped %v, want %v", name, s.Stopped(), test.want)
		}
	}

	if (*Switch)(nil).Stopped() {
		t.Error("a nil switch stops changes, want them permitted")
	}
}

// TestStopped_UnknownState checks that without an answer about the ConfigMap changes are stopped for firstAnswer from the start, and that asking
// does not wait.
func TestStopped_UnknownState(t *testing.T) {
	api := fake.NewClientset()
	api.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), ConfigMapName, nil)
	})
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	s := start(t, api, clk)
	eventually(t, "the wait begins", clk.HasWaiters)
	clk.Step(firstAnswer - 1)

	if !s.Stopped() || s.Check(nil) == nil || s.Paused() {
		t.Errorf("before the end: stopped %t, ready %v, paused %t, want stopped, not ready and not paused", s.Stopped(), s.Check(nil), s.Paused())
	}

	clk.Step(1)
	eventually(t, "changes are permitted", func() bool { return !s.Stopped() && s.Check(nil) == nil })
}
