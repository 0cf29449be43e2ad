// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"crane.io/crane/internal/kube/certificates"
)

// Names of the check of /readyz?verbose that reports the role of this replica. It always passes, because a standby is as ready as
// a leader.
const (
	roleLeader  = "role-leader"
	roleStandby = "role-standby"
)

const (
	// probeTimeout is the timeout of a request and of its response.
	probeTimeout = 10 * time.Second
	// serverShutdown is how long pending requests may take when craned stops.
	serverShutdown = 5 * time.Second
)

// probes serves /healthz and /readyz. Checks may be added at any time.
type probes struct {
	// elected is closed when this replica leads.
	elected <-chan struct{}

	mu          sync.RWMutex
	live, ready map[string]healthz.Checker
	draining    atomic.Bool
}

func newProbes(elected <-chan struct{}) *probes {
	p := &probes{elected: elected, live: map[string]healthz.Checker{"ping": healthz.Ping}}
	p.ready = map[string]healthz.Checker{"shutdown": p.checkDraining}
	return p
}

// drain makes /readyz fail from now on.
func (p *probes) drain() { p.draining.Store(true) }

func (p *probes) checkDraining(*http.Request) error {
	if p.draining.Load() {
		return errors.New("shutting down")
	}

	return nil
}

// isLeader reports whether this replica leads.
func (p *probes) isLeader() bool {
	select {
	case <-p.elected:
		return true
	default:
		return false
	}
}

func (p *probes) addCheck(checks map[string]healthz.Checker, name string, check healthz.Checker) error {
	if name == "" || check == nil {
		return errors.New("a check needs a name and a function")
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	if _, twice := checks[name]; twice || name == roleLeader || name == roleStandby {
		return fmt.Errorf("there is a check %s already", name)
	}

	checks[name] = check
	return nil
}

// handler serves both pages, and each check below them.
func (p *probes) handler() http.Handler {
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{"/healthz": p.live, "/readyz": p.ready} {
		page := http.StripPrefix(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.mu.RLock()
			current := maps.Clone(checks)
			p.mu.RUnlock()

			role := roleStandby
			if p.isLeader() {
				role = roleLeader
			}
			if path == "/readyz" {
				current[role] = healthz.Ping
			}

			(&healthz.Handler{Checks: current}).ServeHTTP(w, r)
		}))

		mux.Handle(path, page)
		mux.Handle(path+"/", page)
	}

	return mux
}

// probedManager is a manager with the probes of craned, which also report the role of the replica.
type probedManager struct {
	manager.Manager
	probes *probes
	// certificates issues craned's certificates; nil if it does not.
	certificates *certificates.Rotator
}

// AddHealthzCheck implements manager.Manager.
func (m probedManager) AddHealthzCheck(name string, check healthz.Checker) error {
	return m.probes.addCheck(m.probes.live, name, check)
}

// AddReadyzCheck implements manager.Manager. A failing check reports its error at /readyz/NAME.
func (m probedManager) AddReadyzCheck(name string, check healthz.Checker) error {
	return m.probes.addCheck(m.probes.ready, name, check)
}

// serveProbes listens at once, so that an address in use is an error before anything runs, and lets the manager serve with its
// other servers, before webhooks and caches.
func serveProbes(ctx context.Context, mgr probedManager, address string) error {
	if address == "" || address == "0" {
		return nil
	}

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--health-probe-bind-address: %w", err)
	}

	timeout := serverShutdown
	err = mgr.Add(&manager.Server{
		Name:            "health probe",
		Listener:        listener,
		ShutdownTimeout: &timeout,
		Server: &http.Server{
			Handler:           mgr.probes.handler(),
			ReadHeaderTimeout: probeTimeout,
			ReadTimeout:       probeTimeout,
			WriteTimeout:      2 * probeTimeout,
			IdleTimeout:       time.Minute,
			MaxHeaderBytes:    1 << 14,
		},
	})
	if err != nil {
		return fmt.Errorf("adding the probes: %w", err)
	}

	return nil
}
