// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"crane.io/crane/internal/scheduler/pluginconfig"
)

// ExplainPath serves explanations: with ?pod=NAMESPACE/NAME that of the latest attempt to place the pod, in every
// profile that has one; without, the names of the recorded pods.
const ExplainPath = "/explain/scheduling"

// explain serves explanations on an address; the caller holds mu. A failure does not stop scheduling.
func (f *Factory) explain(ctx context.Context, address string) {
	if address == pluginconfig.ExplainNone || f.serving[address] {
		return
	}

	f.serving[address] = true
	log := klog.FromContext(ctx).WithValues("plugin", Name, "address", address)

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		log.Error(err, "listening on explainAddress, scheduling is not explained")
		return
	}

	server := &http.Server{
		Handler:           f.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      30 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}

	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		defer stop()

		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error(err, "serving explanations, scheduling is no longer explained")
		}
	}()

	log.V(1).Info("serving explanations of scheduling", "url", "http://"+listener.Addr().String()+ExplainPath)
}

// Handler serves ExplainPath.
func (f *Factory) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+ExplainPath, f.answer)
	return mux
}

// answer serves one request; the profiles are asked in turn.
func (f *Factory) answer(w http.ResponseWriter, r *http.Request) {
	if !isLocal(r.Host) {
		write(w, http.StatusForbidden, map[string]string{"error": "this address answers requests from localhost only"})
		return
	}

	pod := r.URL.Query().Get("pod")
	// Without a pod, the recorded pods are listed.
	if pod == "" {
		recent := []string{}
		for _, p := range f.all() {
			recent = append(recent, p.Recent()...)
		}

		write(w, http.StatusOK, map[string][]string{"pods": recent})
		return
	}

	namespace, name, ok := strings.Cut(pod, "/")
	if !ok {
		write(w, http.StatusBadRequest, map[string]string{"error": "want ?pod=NAMESPACE/NAME"})
		return
	}

	var explanations []any
	for _, p := range f.all() {
		if e, ok := p.Explain(namespace, name); ok {
			explanations = append(explanations, e)
		}
	}

	if len(explanations) == 0 {
		write(w, http.StatusNotFound, map[string]string{"error": "the scheduler has no record of a recent attempt to place this pod"})
		return
	}

	write(w, http.StatusOK, map[string][]any{"explanations": explanations})
}

// isLocal rejects other host names, so that web pages in a browser on this host cannot read the endpoint by DNS
// rebinding.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}

	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && address.IsLoopback()
}

// write writes JSON. Errors of disconnected clients are ignored.
func write(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}
