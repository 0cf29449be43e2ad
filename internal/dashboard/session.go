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
	"maps"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/dashboard/contract"
)

const (
	// sessionLength is the longest life of a session.
	sessionLength = 12 * time.Hour
	// maxPersonal bounds the sessions of one person, maxSessions those of all.
	maxPersonal = 16
	maxSessions = 1024
	// tokenBytes is the entropy of tokens and cookies: 256 bits.
	tokenBytes = 32
)

// session is one login.
type session struct {
	csrf    string
	expires time.Time
	// key is the second secret of a session on loopback, which the page keeps: the browser sends cookies to all ports of a host.
	key string
	// number is that of the login; a later one has a higher number.
	number uint64
	// account is the person, or the namespace of a service account.
	account string
	// person is who logged in with a token; empty where the sessions are those of the user of a kubeconfig.
	person Person
}

// sessions holds the sessions by the hash of their cookie, and the one-time token of the printed address.
type sessions struct {
	clock  clock.PassiveClock
	cookie string // the name
	secure bool   // over TLS
	keyed  bool   // a session needs its key beside the cookie
	// key signs the CSRF tokens of persons whose token comes with each request.
	key []byte

	mu      sync.Mutex
	oneTime string        // empty once it is used
	opened  chan struct{} // closed once oneTime is used
	logins  uint64
	byHash  map[[sha256.Size]byte]session
}

// randomToken returns a token that cannot be guessed.
func randomToken() string {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// redeem starts a session for the one-time token, which is then used up.
func (s *sessions) redeem(token string) (cookie, key string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.oneTime == "" || subtle.ConstantTimeCompare([]byte(token), []byte(s.oneTime)) != 1 {
		return "", "", false
	}

	s.oneTime = ""
	close(s.opened)
	cookie = s.add(Person{}, sessionLength)
	return cookie, s.byHash[sha256.Sum256([]byte(cookie))].key, true
}

// start starts a session for a person, which ends with the token at the latest.
func (s *sessions) start(p Person) (cookie string, login session, err error) {
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
	s.logins++
	s.byHash[sha256.Sum256([]byte(cookie))] = session{
		csrf:    randomToken(),
		key:     randomToken(),
		expires: s.clock.Now().Add(life),
		number:  s.logins,
		account: accountOf(p),
		person:  p,
	}

	s.bound(p)

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

// bound keeps the numbers of sessions within their bounds after a login of a person: first the person's own oldest session ends, then the
// oldest one of the account with the most, so that nobody ends the sessions of others by logging in often.
func (s *sessions) bound(added Person) {
	now := s.clock.Now()
	maps.DeleteFunc(s.byHash, func(_ [sha256.Size]byte, login session) bool { return !now.Before(login.expires) })

	personal := 0
	largest := 0
	byAccount := map[string]int{}
	for _, login := range s.byHash {
		if login.person.Name == added.Name {
			personal++
		}

		byAccount[login.account]++
		largest = max(largest, byAccount[login.account])
	}

	switch {
	case personal > maxPersonal:
		s.dropOldest(func(login session) bool { return login.person.Name == added.Name })
	case len(s.byHash) > maxSessions:
		s.dropOldest(func(login session) bool { return byAccount[login.account] == largest })
	}
}

// accountOf returns what a person cannot have many of: the namespace of a service account, whose owner creates others at will, or the name.
func accountOf(p Person) string {
	namespace, _, err := serviceaccount.SplitUsername(p.Name)
	if err != nil {
		return p.Name
	}

	return serviceaccount.ServiceAccountUsernamePrefix + namespace
}

// dropOldest ends the oldest session of those that match.
func (s *sessions) dropOldest(matches func(session) bool) {
	var oldest [sha256.Size]byte
	number := uint64(math.MaxUint64)
	for hash, login := range s.byHash {
		if login.number < number && matches(login) {
			oldest = hash
			number = login.number
		}
	}

	delete(s.byHash, oldest)
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

	login, ok := s.byHash[hash]
	if s.keyed && !sameToken(r.Header.Get(contract.SessionKeyHeader), login.key) {
		return session{}, false
	}

	if ok && !s.clock.Now().Before(login.expires) {
		delete(s.byHash, hash)
		return session{}, false
	}

	return login, ok
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
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure wherever there is TLS
		Name:     s.cookie,
		Value:    value,
		Path:     "/",
		MaxAge:   age,
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
		Secure:   s.secure,
	})
}
