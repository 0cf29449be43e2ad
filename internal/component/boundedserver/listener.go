// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package boundedserver

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// answerTime is how long a connection is kept after the work for its request, while the server reads the rest of the body and writes the
// rest of the answer. A client that is slower then gives way to others.
const answerTime = 2 * time.Second

// limitListener keeps the number of open connections below a limit. Beyond it, a new connection takes the place of the one that waits
// longest: for a handshake, a request, the body of one, or its client to read. So connections that send nothing, or little at a time, keep
// no other client out. Connections whose request is being served are kept, and a moment longer for the answer; if all are, the new one
// waits for the end of one.
type limitListener struct {
	net.Listener
	limit int

	mu       sync.Mutex
	sequence uint64
	open     map[*limitedConn]struct{}
	// changed is closed and replaced when a connection ends or begins to wait.
	changed chan struct{}
	closed  chan struct{}
	stop    sync.Once
}

// limitedConn is an open connection.
type limitedConn struct {
	net.Conn
	listener *limitListener
	// since is the order in which connections began to wait; served ones had a request before.
	since  uint64
	served bool
	// serving is set while the server works for a request; answering is when that ended, until the answer is written.
	serving   bool
	answering time.Time
	end       sync.Once
}

func newLimitListener(listener net.Listener, limit int) *limitListener {
	return &limitListener{
		Listener: listener,
		limit:    limit,
		open:     map[*limitedConn]struct{}{},
		changed:  make(chan struct{}),
		closed:   make(chan struct{}),
	}
}

// Accept implements net.Listener.
func (l *limitListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}

	limited := &limitedConn{Conn: conn, listener: l}
	for {
		victim, changed := l.admit(limited)
		if victim == nil && changed == nil {
			return limited, nil
		}

		if victim != nil {
			_ = victim.Close()
			continue
		}

		select {
		case <-changed:
		case <-time.After(answerTime): // An answer may take longer than that by now.
		case <-l.closed:
			_ = conn.Close()
			return nil, net.ErrClosed
		}
	}
}

// admit adds a connection. If the limit is reached, it returns the connection to close first, or the channel to wait on.
func (l *limitListener) admit(conn *limitedConn) (victim *limitedConn, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if len(l.open) < l.limit {
		l.sequence++
		conn.since = l.sequence
		l.open[conn] = struct{}{}
		return nil, nil
	}

	// A client that had an answer is likely to be a user, so that others are closed first.
	for c := range l.open {
		if c.isKept() {
			continue
		}
		if victim == nil || !c.served && victim.served || c.served == victim.served && c.since < victim.since {
			victim = c
		}
	}

	if victim != nil {
		return victim, nil
	}

	return nil, l.changed
}

// Close implements net.Listener.
func (l *limitListener) Close() error {
	l.stop.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.end.Do(func() {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()

		delete(c.listener.open, c)
		c.listener.wake()
	})

	return c.Conn.Close()
}

// wake lets a new connection try again. The caller holds mu.
func (l *limitListener) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// isKept reports whether the connection gives way to no other one. The caller holds the listener's mu.
func (c *limitedConn) isKept() bool {
	return c.serving || !c.answering.IsZero() && time.Since(c.answering) < answerTime
}

// serve keeps the connection for a request.
func (c *limitedConn) serve() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()

	c.serving = true
	c.served = true
	c.answering = time.Time{}
}

// answer keeps the connection for the rest of an answer.
func (c *limitedConn) answer() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()

	c.serving = false
	c.answering = time.Now()
	c.listener.sequence++
	c.since = c.listener.sequence
}

// wait lets the connection give way to others.
func (c *limitedConn) wait() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()

	c.serving = false
	c.answering = time.Time{}
	c.listener.sequence++
	c.since = c.listener.sequence
	c.listener.wake()
}

type connKey struct{}

// withConn returns a context with the connection of its requests.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	limited := limitedOf(conn)
	if limited == nil {
		return ctx
	}

	return context.WithValue(ctx, connKey{}, limited)
}

// limitedOf returns the connection of a limitListener below one of TLS; nil for any other connection.
func limitedOf(conn net.Conn) *limitedConn {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = wrapped.NetConn()
	}

	limited, _ := conn.(*limitedConn)
	return limited
}

// release lets a connection give way to others when its answer is written. The end of the handler is too early: the server writes the
// last part of an answer after it.
func release(conn net.Conn, state http.ConnState) {
	limited := limitedOf(conn)
	if state == http.StateIdle && limited != nil {
		limited.wait()
	}
}

// Keep keeps the connection of a request open, also beside many others, until the returned function is called, and a moment longer for the
// answer.
func Keep(ctx context.Context) (release func()) {
	limited, ok := ctx.Value(connKey{}).(*limitedConn)
	if !ok {
		return func() {}
	}

	limited.serve()
	return sync.OnceFunc(limited.answer)
}

// keeping serves requests whose connections are kept until the end of the handler.
func keeping(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		release := Keep(r.Context())
		defer release()

		handler.ServeHTTP(w, r)
	})
}
