// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokenlimit bounds the reviews of bearer tokens that a server has not seen before. Each costs a request to the API server, and
// everybody who reaches the port can send any number of them.
package tokenlimit

import (
	"crypto/sha256"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// Bounds of unknown tokens. One source has a quarter of all, so that one client does not keep the new token of another out.
const (
	perSecond       = 20
	burst           = 40
	sourcePerSecond = 5
	sourceBurst     = 10
	maxSources      = 4096
	// maxTokens bounds the remembered tokens, by their hash. Accepted ones are remembered for acceptedTTL after their last use.
	maxTokens   = 4096
	acceptedTTL = 10 * time.Minute
	refusedTTL  = 30 * time.Second
)

// limiter bounds unknown tokens.
type limiter struct {
	clock clock.PassiveClock
	next  http.Handler
	fail  func(w http.ResponseWriter, status int, message string)
	all   *rate.Limiter

	accepted, refused *utilcache.LRUExpireCache

	mu      sync.Mutex
	sources *utilcache.LRUExpireCache
	// pending are the numbers of requests whose token is being reviewed: a page sends several at once with a new token.
	pending map[[sha256.Size]byte]int
}

// Handler returns a handler that passes requests to next, which answers 401 for a token that it does not accept. A refused token is not asked
// for again for half a minute, and more unknown tokens than the bounds, of a source or of all, are answered with 429; fail writes these answers.
func Handler(c clock.PassiveClock, next http.Handler, fail func(w http.ResponseWriter, status int, message string)) http.Handler {
	return &limiter{
		clock:    c,
		next:     next,
		fail:     fail,
		all:      rate.NewLimiter(perSecond, burst),
		accepted: utilcache.NewLRUExpireCacheWithClock(maxTokens, c),
		refused:  utilcache.NewLRUExpireCacheWithClock(maxTokens, c),
		sources:  utilcache.NewLRUExpireCacheWithClock(maxSources, c),
		pending:  map[[sha256.Size]byte]int{},
	}
}

// PlainError writes an answer as text.
func PlainError(w http.ResponseWriter, status int, message string) { http.Error(w, message, status) }

// ServeHTTP implements http.Handler.
func (l *limiter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := r.Header.Get("Authorization")
	if token == "" {
		l.next.ServeHTTP(w, r)
		return
	}

	hash := sha256.Sum256([]byte(token))
	if _, ok := l.refused.Get(hash); ok {
		l.fail(w, http.StatusUnauthorized, "the token was refused")
		return
	}

	if _, ok := l.accepted.Get(hash); !ok {
		if !l.start(hash, sourceOf(r)) {
			w.Header().Set("Retry-After", "1")
			l.fail(w, http.StatusTooManyRequests, "too many unknown tokens")
			return
		}
		defer l.end(hash)
	}

	answer := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	l.next.ServeHTTP(answer, r)

	switch answer.status {
	case http.StatusUnauthorized:
		l.accepted.Remove(hash)
		l.refused.Add(hash, true, refusedTTL)
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable:
		// Nothing is known about the token.
	default:
		l.accepted.Add(hash, true, acceptedTTL)
	}
}

// start takes one unknown token from the bounds of a source and of all, unless a review of it is pending.
func (l *limiter) start(hash [sha256.Size]byte, source string) bool {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.pending[hash] > 0 {
		l.pending[hash]++
		return true
	}

	bucket, ok := l.sources.Get(source)
	limit, isLimiter := bucket.(*rate.Limiter)
	if !ok || !isLimiter {
		limit = rate.NewLimiter(sourcePerSecond, sourceBurst)
	}

	l.sources.Add(source, limit, time.Hour)
	if !limit.AllowN(now, 1) || !l.all.AllowN(now, 1) {
		return false
	}

	l.pending[hash]++
	return true
}

// end forgets a pending review.
func (l *limiter) end(hash [sha256.Size]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.pending[hash]--
	if l.pending[hash] == 0 {
		delete(l.pending, hash)
	}
}

// sourceOf returns the address of the client; of IPv6 the network, of which a client has all addresses.
func sourceOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}

	ip := net.ParseIP(host)
	if ip == nil || ip.To4() != nil || !strings.Contains(host, ":") {
		return host
	}

	const network = 64
	return ip.Mask(net.CIDRMask(network, 8*net.IPv6len)).String()
}

// statusWriter keeps the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap gives http.ResponseController the writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
