// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/testbed/simnode/access"
	"crane.io/crane/internal/testbed/simnode/kubeletapi"
	"crane.io/crane/internal/testbed/simnode/metricsapi"
)

// shutdownTimeout bounds the wait for active requests when the fleet stops.
const shutdownTimeout = 2 * time.Second

// server is an HTTPS server with an open listener.
type server struct {
	http     *http.Server
	listener net.Listener
}

// serve serves until the context ends.
func (s server) serve(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)

		// ServeTLS returns ErrServerClosed after Shutdown; other errors disable the endpoint, which clients detect.
		_ = s.http.ServeTLS(s.listener, "", "")
	}()

	<-ctx.Done()
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()

	if err := s.http.Shutdown(stopCtx); err != nil {
		_ = s.http.Close() // close the remaining connections
	}
	<-done
}

// listen opens the endpoints of all nodes and of metrics.k8s.io, and registers the latter.
func (f *Fleet) listen(ctx context.Context) ([]server, error) {
	serving := f.config.Serving
	if serving == nil {
		return nil, nil
	}

	guard := access.New(access.Config{
		Client:          f.client,
		ClientCA:        serving.ClientCA,
		FrontProxyCA:    serving.FrontProxyCA,
		FrontProxyNames: serving.FrontProxyNames,
		Now:             f.config.Clock.Now,
	})

	// The servers are collected here, so that those already open are closed after an error.
	var servers []server
	open := func(handler http.Handler, hosts ...string) (int, error) {
		cert, err := serving.Cert(hosts...)
		if err != nil {
			return 0, fmt.Errorf("issuing the serving certificate for %v: %w", hosts, err)
		}

		var lc net.ListenConfig
		listener, err := lc.Listen(ctx, "tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return 0, err
		}

		servers = append(servers, server{listener: listener, http: &http.Server{
			Handler:           handler,
			TLSConfig:         access.TLS(cert),
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       90 * time.Second,
			MaxHeaderBytes:    64 << 10,
			ErrorLog:          log.New(io.Discard, "", 0),
		}})

		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			return 0, err
		}

		return strconv.Atoi(port)
	}

	err := f.openAll(ctx, guard, open)
	if err != nil {
		for _, s := range servers {
			err = errors.Join(err, s.listener.Close())
		}

		return nil, fmt.Errorf("simulated nodes: serving: %w", err)
	}

	return servers, nil
}

func (f *Fleet) openAll(ctx context.Context, guard *access.Guard, open func(http.Handler, ...string) (int, error)) error {
	for _, m := range f.order {
		hosts := []string{loopback, "localhost", m.spec.Name}
		if m.external != "" {
			hosts = append(hosts, m.external)
		}

		port, err := open(kubeletapi.Handler(guard, nodeSource{f, m}), hosts...)
		if err != nil {
			return fmt.Errorf("opening the endpoint of node %s: %w", m.spec.Name, err)
		}

		m.mu.Lock()
		m.port = port
		m.mu.Unlock()
	}

	if !f.config.Serving.Metrics {
		return nil
	}

	// One endpoint serves the metrics of all nodes.
	port, err := open(metricsapi.Handler(guard, f), append(metricsapi.Hosts(), loopback, "localhost")...)
	if err != nil {
		return fmt.Errorf("opening the endpoint of metrics.k8s.io: %w", err)
	}

	return metricsapi.Install(ctx, f.client, f.config.Serving.CA, port)
}

// nodeSource is the source of the endpoint of one node.
type nodeSource struct {
	fleet  *Fleet
	member *member
}

// State implements kubeletapi.Source.
func (s nodeSource) State() NodeState { return s.fleet.state(s.member) }

// Pods implements kubeletapi.Source.
func (s nodeSource) Pods() []*corev1.Pod {
	s.member.mu.Lock()
	defer s.member.mu.Unlock()

	return s.member.node.Pods()
}

// Containers implements kubeletapi.Source.
func (s nodeSource) Containers() []ContainerState {
	s.member.mu.Lock()
	defer s.member.mu.Unlock()

	return s.member.node.Containers(nil, !s.member.down)
}
