// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"crane.io/crane/internal/component/boundedserver"
	"crane.io/crane/internal/dashboard/contract"
)

// maxBodies bounds the bodies that one account sends at the same time, maxAllBodies those of all: each takes up to maxBody of memory.
const (
	maxBodies    = 4
	maxAllBodies = 32
)

// maxPersonalPlaces bounds the requests of one account that are served at the same time. A browser sends up to six.
const maxPersonalPlaces = 8

// places bounds the requests that are served at the same time. A request has a place while the server works for it, and none while it waits for
// the client: for the body before, or for the client to read the answer.
type places struct {
	slots chan struct{}

	mu sync.Mutex
	// bodies are the numbers of bodies that are being read, by account.
	bodies map[string]int
	all    int
	// served are the numbers of requests that are being served, by account.
	served map[string]int
}

func newPlaces() *places {
	return &places{slots: make(chan struct{}, maxConcurrent), bodies: map[string]int{}, served: map[string]int{}}
}

type placeKey struct{}

// enter takes a place, without which a request is not served, and returns the context with it. The connection is kept as long.
func (p *places) enter(ctx context.Context) (placed context.Context, leave func(), ok bool) {
	select {
	case p.slots <- struct{}{}:
	default:
		return ctx, nil, false
	}

	release := boundedserver.Keep(ctx)
	leave = sync.OnceFunc(func() {
		release()
		<-p.slots
	})

	return context.WithValue(ctx, placeKey{}, leave), leave, true
}

// leavePlace gives the place of a request to another one, before the answer is sent.
func leavePlace(ctx context.Context) {
	if leave, ok := ctx.Value(placeKey{}).(func()); ok {
		leave()
	}
}

// startWork takes one of the places of an account, so that slow requests of one person leave places to others. An empty account, of the user of a
// kubeconfig, may take all.
func (p *places) startWork(account string) (end func(), err error) {
	if account == "" {
		return func() {}, nil
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	if p.served[account] >= maxPersonalPlaces {
		return nil, errBusy()
	}

	p.served[account]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()

		p.served[account]--
		if p.served[account] == 0 {
			delete(p.served, account)
		}
	}, nil
}

// work calls run in a place of an account.
func (p *places) work(account string, run func() error) error {
	end, err := p.startWork(account)
	if err != nil {
		return err
	}
	defer end()

	return run()
}

// startBody reports whether an account may send one more body.
func (p *places) startBody(account string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.bodies[account] >= maxBodies || p.all >= maxAllBodies {
		return false
	}

	p.bodies[account]++
	p.all++
	return true
}

func (p *places) endBody(account string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.all--
	p.bodies[account]--
	if p.bodies[account] == 0 {
		delete(p.bodies, account)
	}
}

// readBody reads the body of a request before it takes a place, so that slow clients hold their connections and nothing else. That of a login
// is small, because everybody can send one; others need a session.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		r.Body = http.NoBody
		return nil
	}

	limit := int64(maxToken + maxHeader)
	if !s.isLogin(r) {
		login, _, err := s.authenticate(r)
		if err != nil {
			return err
		}

		account := accountOf(login.person)
		if !s.places.startBody(account) {
			return errBusy()
		}
		defer s.places.endBody(account)

		limit = maxBody
	}

	_ = http.NewResponseController(w).SetReadDeadline(s.config.Clock.Now().Add(bodyTimeout)) // Recorders of tests have none.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		return bodyFailure(err)
	}

	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// isLogin reports whether a request is a login by a token.
func (s *Server) isLogin(r *http.Request) bool {
	return s.config.Reviews != nil && r.URL.Path == contract.Prefix+contract.PathLogin
}

// isPage reports whether a request is for a file of the page, which needs no work and so no place.
func isPage(r *http.Request) bool {
	return !strings.HasPrefix(r.URL.Path, contract.Prefix) && r.URL.Query().Get("token") == ""
}

func errBusy() error {
	return NewResponseError(http.StatusTooManyRequests, contract.ReasonBusy, "too many requests at the same time", "repeat the request")
}
