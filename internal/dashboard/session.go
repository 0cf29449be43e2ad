// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// sessionLength is the longest life of a session; maxSessions bounds their number, the one that ends first is dropped.
	sessionLength = 12 * time.Hour
	maxSessions   = 1024
	// tokenBytes is the entropy of tokens and cookies: 256 bits.
	tokenBytes = 32
)

// session is one login.
type session struct {
	csrf    string
	expires time.Time
	// person is who logged in with a token; empty where the sessions are those of the user of a kubeconfig.
	person Person
}

// sessions holds the sessions by the hash of their cookie, and the one-time token of the printed address.
type sessions struct {
	clock  clock.PassiveClock
	cookie string // the name
	secure bool   // over TLS
	// key signs the CSRF tokens of persons whose token comes with each request.
	key []byte

	mu      sync.Mutex
	oneTime string // empty once it is used
	byHash  map[[sha256.Size]byte]session
}

// randomToken returns a token that cannot be guessed.
func randomToken() string {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// redeem starts a session for the one-time token, which is then used up.
func (s *sessions) redeem(token string) (cookie string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.oneTime == "" || subtle.ConstantTimeCompare([]byte(token), []byte(s.oneTime)) != 1 {
		return "", false
	}

	s.oneTime = ""
	return s.add(Person{}, sessionLength), true
}

// start starts a session for a person, which ends with the token at the latest.
func (s *sessions) start(p Person) (cookie string, one session, err error) {
	life := sessionLength
	if end := expiry(p.Token); !end.IsZero() {
		if life = min(life, end.Sub(s.clock.Now())); life <= 0 {
			return "", session{}, errNoSession("")
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	cookie = s.add(p, life)
	return cookie, s.byHash[sha256.Sum256([]byte(cookie))], nil
}

func (s *sessions) add(p Person, life time.Duration) (cookie string) {
	cookie = randomToken()
	s.byHash[sha256.Sum256([]byte(cookie))] = session{csrf: randomToken(), expires: s.clock.Now().Add(life), person: p}
	s.dropOldest()

	return cookie
}

// expiry returns the end of a JSON web token, zero if it has none. The API server verifies the token; this only shortens the session.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}

	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Expires float64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Expires < 1 || claims.Expires > 1<<40 {
		return time.Time{}
	}

	return time.Unix(int64(claims.Expires), 0)
}

// csrfOf returns the CSRF token of a person whose token comes with each request, from a proxy. It stays the same when the token is renewed.
func (s *sessions) csrfOf(name string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(name))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// dropOldest keeps the number of sessions within the bound.
func (s *sessions) dropOldest() {
	for len(s.byHash) > maxSessions {
		var oldest [sha256.Size]byte
		var at time.Time
		for hash, one := range s.byHash {
			if at.IsZero() || one.expires.Before(at) {
				oldest = hash
				at = one.expires
			}
		}

		delete(s.byHash, oldest)
	}
}

// of returns the session of a request.
func (s *sessions) of(r *http.Request) (session, bool) {
	cookie, err := r.Cookie(s.cookie)
	if err != nil {
		return session{}, false
	}

	hash := sha256.Sum256([]byte(cookie.Value))
	s.mu.Lock()
	defer s.mu.Unlock()

	one, ok := s.byHash[hash]
	if ok && !s.clock.Now().Before(one.expires) {
		delete(s.byHash, hash)
		return session{}, false
	}

	return one, ok
}

// end removes the session of a request.
func (s *sessions) end(r *http.Request) {
	if cookie, err := r.Cookie(s.cookie); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()

		delete(s.byHash, sha256.Sum256([]byte(cookie.Value)))
	}
}

// setCookie sets the cookie of a session, or removes it for an empty value.
func (s *sessions) setCookie(w http.ResponseWriter, value string) {
	age := int(sessionLength / time.Second)
	if value == "" {
		age = -1
	}

	// Loopback has no TLS; the cookie leaves the machine on no path.
	http.SetCookie(w, &http.Cookie{
		Name:     s.cookie,
		Value:    value,
		Path:     "/",
		MaxAge:   age,
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
		Secure:   s.secure,
	}) //nolint:gosec // Secure wherever there is TLS
}
