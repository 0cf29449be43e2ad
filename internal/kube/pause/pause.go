// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pause has the switch that stops all writes of Crane's components to objects that are not Crane's: a ConfigMap that they watch.
package pause

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/kube/slimclient"
)

const (
	// ConfigMapName is the name of the ConfigMap in Crane's own namespace.
	ConfigMapName = "crane-pause"
	// KeyPaused is its key: "true" stops the writes. Absent, empty or "false" permits them; any other value stops them as well.
	KeyPaused = "paused"
	// KeyReason is the key of a text that conditions and errors repeat.
	KeyReason = "reason"
)

// firstAnswer is how long a write waits for the first state of the ConfigMap, and for how long after Start the switch counts as stopped without
// one, so that a component that starts while writes are stopped changes nothing. A component without the right to read the ConfigMap writes
// after it.
const firstAnswer = 5 * time.Second

// maxReason bounds the reason in bytes.
const maxReason = 256

// Switch follows the ConfigMap. It is a prometheus.Collector of the metric crane_paused.
type Switch struct {
	client     slimclient.Interface
	namespace  string
	clock      clock.Clock
	loaded     chan struct{}
	loadedOnce sync.Once
	// overdue is set if the first state is unknown at firstAnswer after Start.
	overdue atomic.Bool

	mu     sync.RWMutex
	paused bool
	reason string
}

// New returns a switch whose state is unknown until Start has read the ConfigMap.
func New(client slimclient.Interface, namespace string, clk clock.Clock) *Switch {
	return &Switch{
		client:    client,
		namespace: namespace,
		clock:     clk,
		loaded:    make(chan struct{}),
	}
}

// Start follows the ConfigMap until ctx ends. While the API server does not answer, the last state holds.
func (s *Switch) Start(ctx context.Context) error {
	// Not the factory of client-go: it links the informers of all kinds into the agent.
	configMaps := s.client.CoreV1().ConfigMaps(s.namespace)
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, ConfigMapName).String()

	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = selector
				return configMaps.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = selector
				return configMaps.Watch(ctx, o)
			},
		}, s.client),
		ObjectType: &corev1.ConfigMap{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    s.observe,
			UpdateFunc: func(_, o any) { s.observe(o) },
			DeleteFunc: func(any) { s.set(false, "") },
		},
	})

	// Nothing waits for the informer at the end: between two attempts of a watch client-go sleeps up to 30 s without heed to ctx.
	go informer.RunWithContext(ctx)

	go func() {
		select {
		case <-s.clock.After(firstAnswer):
			s.overdue.Store(true)
		case <-s.loaded:
		case <-ctx.Done():
		}
	}()

	if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		s.loadedOnce.Do(func() { close(s.loaded) })
	}

	<-ctx.Done()
	return nil
}

// NeedLeaderElection returns false: standbys serve webhooks, and know the state before they lead.
func (*Switch) NeedLeaderElection() bool { return false }

func (s *Switch) observe(o any) {
	cm, ok := o.(*corev1.ConfigMap)
	if !ok || cm.Name != ConfigMapName {
		return
	}

	reason := cm.Data[KeyReason]
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}

	s.set(IsPaused(cm), reason)
}

// IsPaused reports whether a ConfigMap stops writes. Case and surrounding spaces do not matter.
func IsPaused(cm *corev1.ConfigMap) bool {
	value := strings.ToLower(strings.TrimSpace(cm.Data[KeyPaused]))
	return value != "" && value != "false"
}

func (s *Switch) set(paused bool, reason string) {
	s.mu.Lock()
	s.paused = paused
	s.reason = reason
	s.mu.Unlock()

	if paused {
		s.loadedOnce.Do(func() { close(s.loaded) })
	}
}

// Paused reports whether the ConfigMap stops writes, as far as its state is known. A nil switch permits them.
func (s *Switch) Paused() bool {
	if s == nil {
		return false
	}

	s.mu.RLock()
	defer s.mu.RUnlock()

	return s.paused
}

// Stopped reports whether what does not pass Wrap, such as a file of the host or a new pod, must not be changed: while writes are stopped, and
// without waiting until the first state is known, at most firstAnswer after Start. A nil switch permits changes.
func (s *Switch) Stopped() bool { return s != nil && (s.pending() || s.Paused()) }

// Check returns an error until Stopped returns the state of the ConfigMap, for readiness.
func (s *Switch) Check(*http.Request) error {
	if s.pending() {
		return fmt.Errorf("the state of ConfigMap %s/%s is not known yet", s.namespace, ConfigMapName)
	}

	return nil
}

// pending reports whether the first state is unknown and not overdue.
func (s *Switch) pending() bool {
	select {
	case <-s.loaded:
		return false
	default:
		return !s.overdue.Load()
	}
}

// Message describes why nothing is written, and how to change that.
func (s *Switch) Message() string {
	s.mu.RLock()
	defer s.mu.RUnlock()

	text := fmt.Sprintf("Crane is paused by ConfigMap %s/%s; crane resume permits writes again", s.namespace, ConfigMapName)
	if s.reason != "" {
		text += ": " + s.reason
	}

	return text
}

func pausedDesc() *prometheus.Desc {
	return prometheus.NewDesc("crane_paused", "1 while ConfigMap crane-pause stops all writes to objects that are not Crane's.", nil, nil)
}

// Describe implements prometheus.Collector.
func (*Switch) Describe(ch chan<- *prometheus.Desc) { ch <- pausedDesc() }

// Collect implements prometheus.Collector.
func (s *Switch) Collect(ch chan<- prometheus.Metric) {
	value := 0.0
	if s.Paused() {
		value = 1
	}

	ch <- prometheus.MustNewConstMetric(pausedDesc(), prometheus.GaugeValue, value)
}

// Wrap returns a transport that refuses writes while they are stopped, so that no controller can forget the switch. The refusal is an answer
// 403 of the API server.
func (s *Switch) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if !s.stops(req) {
			return next.RoundTrip(req)
		}

		select {
		case <-s.loaded:
		case <-req.Context().Done():
		case <-s.clock.After(firstAnswer): // Later writes do not wait again.
			s.loadedOnce.Do(func() { close(s.loaded) })
		}

		if !s.Paused() {
			return next.RoundTrip(req)
		}

		if req.Body != nil {
			req.Body.Close()
		}

		return s.refusal(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

func (s *Switch) refusal(req *http.Request) (*http.Response, error) {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Code:     http.StatusForbidden,
		Reason:   metav1.StatusReasonForbidden,
		Message:  s.Message(),
	})
	if err != nil {
		return nil, fmt.Errorf("encoding a refusal: %w", err)
	}

	return &http.Response{
		Status:        "403 Forbidden",
		StatusCode:    http.StatusForbidden,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Request:       req,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}, nil
}

// stops reports whether a request is a write to an object that is not Crane's. Crane's own kinds and namespace, leases, events, reviews of
// tokens and rights, and the certificates in webhook configurations are written always.
func (s *Switch) stops(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}

	if strings.Contains(req.URL.RawQuery, "dryRun=All") {
		return false
	}

	group, namespace, resource, ok := parsePath(req.URL.Path)
	if !ok {
		return true
	}

	return !strings.HasSuffix(group, ".crane.io") && namespace != s.namespace && (group != "" || resource != "events") && !slices.Contains([]string{
		"coordination.k8s.io", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "admissionregistration.k8s.io",
	}, group)
}

// parsePath returns what a path of the Kubernetes API addresses: /api/v1/... or /apis/GROUP/VERSION/..., behind any prefix.
func parsePath(path string) (group, namespace, resource string, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	at := slices.IndexFunc(parts, func(p string) bool { return p == "api" || p == "apis" })
	if at < 0 {
		return "", "", "", false
	}

	skip := 2 // api/VERSION
	if parts[at] == "apis" {
		skip = 3
		if len(parts) > at+1 {
			group = parts[at+1]
		}
	}

	if len(parts) <= at+skip {
		return "", "", "", false
	}

	rest := parts[at+skip:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		namespace = rest[1]
		rest = rest[2:]
	}

	return group, namespace, rest[0], true
}
