// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
)

// Cache durations of the API server's responses: those of the kubelet for accepted (2 min) and rejected tokens (30 s),
// and less than its 5 min for allowed requests, to make tests of RBAC faster.
const (
	tokenLife   = 2 * time.Minute
	allowedLife = 30 * time.Second
	deniedLife  = 10 * time.Second
)

// maxEntries bounds each cache.
const maxEntries = 2048

// authenticated is the group of all users with valid credentials.
const authenticated = "system:authenticated"

// maxTokenLength is far above any real token; longer ones are rejected without a review.
const maxTokenLength = 16 << 10

// Config configures a Guard.
type Config struct {
	// Client sends reviews; it needs the verb create on tokenreviews and subjectaccessreviews.
	Client kubernetes.Interface
	// ClientCA verifies client certificates: the common name is the user, the organizations are the groups.
	ClientCA *x509.CertPool
	// FrontProxyCA verifies the client certificate of the API server's proxy, whose common name must be one of
	// FrontProxyNames. The user is then read from the X-Remote-* headers. Nil disables front-proxy authentication.
	FrontProxyCA    *x509.CertPool
	FrontProxyNames []string
	// Now returns the current time.
	Now func() time.Time
}

// User is the authenticated user.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string]authorizationv1.ExtraValue
}

// Guard authenticates and authorizes requests. It is safe for concurrent use.
type Guard struct {
	config Config
	tokens *utilcache.LRUExpireCache // of User
	rights *utilcache.LRUExpireCache // of bool
}

// New returns a Guard.
func New(config Config) *Guard {
	now := clock(config.Now)
	return &Guard{
		config: config,
		tokens: utilcache.NewLRUExpireCacheWithClock(maxEntries, now), rights: utilcache.NewLRUExpireCacheWithClock(maxEntries, now),
	}
}

// clock is the clock of the caches.
type clock func() time.Time

// Now implements utilcache.Clock.
func (c clock) Now() time.Time { return c() }

// TLS returns the configuration of a listener that requests client certificates for a Guard.
func TLS(cert tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{cert},
		MinVersion:   tls.VersionTLS12,
		ClientAuth:   tls.RequestClientCert,
		NextProtos:   []string{"h2", "http/1.1"},
	}
}

// Right is an action to authorize: on a resource or, if Resource is nil, on a path.
type Right struct {
	Resource *authorizationv1.ResourceAttributes
	Path     *authorizationv1.NonResourceAttributes
}

// Protect passes a request to next if its user has one of the rights that need returns for it.
func (g *Guard) Protect(next http.Handler, need func(*http.Request) []Right) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, err := g.authenticate(req)
		if err != nil {
			Fail(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, err.Error())
			return
		}

		for _, right := range need(req) {
			ok, err := g.authorize(req.Context(), user, right)
			if err != nil {
				Fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
				return
			}

			if ok {
				next.ServeHTTP(w, req)
				return
			}
		}

		Fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("user %q may not %s %s", user.Name, strings.ToLower(req.Method), req.URL.Path))
	})
}

// Fail responds with a Status object, as API servers do.
func Fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Code:     int32(code),
		Reason:   reason,
		Message:  message,
	}

	// Write errors mean that the client has disconnected.
	_ = json.NewEncoder(w).Encode(status)
}

// authenticate returns the user by certificate or token.
func (g *Guard) authenticate(req *http.Request) (User, error) {
	if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
		chain := req.TLS.PeerCertificates
		name := chain[0].Subject.CommonName
		if g.verify(chain, g.config.FrontProxyCA) && slices.Contains(g.config.FrontProxyNames, name) {
			return proxied(req.Header)
		}
		if g.verify(chain, g.config.ClientCA) && name != "" {
			return User{Name: name, Groups: append([]string{authenticated}, chain[0].Subject.Organization...)}, nil
		}
	}

	scheme, token, ok := strings.Cut(req.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(token) == "" {
		return User{}, errors.New("no credentials: a client certificate of the cluster or a bearer token is needed")
	}

	return g.review(req.Context(), strings.TrimSpace(token))
}

func (g *Guard) verify(chain []*x509.Certificate, roots *x509.CertPool) bool {
	if roots == nil {
		return false
	}

	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}

	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: intermediates,
		CurrentTime:   g.config.Now(),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})

	return err == nil
}

// proxied returns the user of the headers that the API server's proxy sets.
func proxied(h http.Header) (User, error) {
	u := User{Name: h.Get("X-Remote-User"), UID: h.Get("X-Remote-Uid"), Groups: slices.Clone(h.Values("X-Remote-Group"))}
	if u.Name == "" {
		return User{}, errors.New("the front proxy named no user")
	}

	// As in every API server, authenticated users are in this group unless the proxy sets the other one.
	if !slices.Contains(u.Groups, authenticated) && !slices.Contains(u.Groups, "system:unauthenticated") {
		u.Groups = append(u.Groups, authenticated)
	}

	const prefix = "X-Remote-Extra-"
	for key, values := range h {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			if u.Extra == nil {
				u.Extra = map[string]authorizationv1.ExtraValue{}
			}

			name = strings.ToLower(name)
			if plain, err := url.PathUnescape(name); err == nil {
				name = plain
			}

			u.Extra[name] = values
		}
	}

	return u, nil
}

// review resolves a token with a TokenReview.
func (g *Guard) review(ctx context.Context, token string) (User, error) {
	if len(token) > maxTokenLength {
		return User{}, errors.New("the bearer token is too long")
	}

	// The cache has hashes only, so that no token stays in memory.
	sum := sha256.Sum256([]byte(token))

	key := string(sum[:])
	if u, ok := g.tokens.Get(key); ok {
		return u.(User), nil
	}

	reply, err := g.config.Client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return User{}, fmt.Errorf("reviewing the bearer token: %w", err)
	}

	if !reply.Status.Authenticated {
		return User{}, errors.New("the bearer token is not valid")
	}

	u := User{Name: reply.Status.User.Username, UID: reply.Status.User.UID, Groups: reply.Status.User.Groups}
	for k, v := range reply.Status.User.Extra {
		if u.Extra == nil {
			u.Extra = map[string]authorizationv1.ExtraValue{}
		}
		u.Extra[k] = authorizationv1.ExtraValue(v)
	}

	g.tokens.Add(key, u, tokenLife)
	return u, nil
}

// authorize checks a right with a SubjectAccessReview.
func (g *Guard) authorize(ctx context.Context, u User, right Right) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User:                  u.Name,
		UID:                   u.UID,
		Groups:                u.Groups,
		Extra:                 u.Extra,
		ResourceAttributes:    right.Resource,
		NonResourceAttributes: right.Path,
	}

	key, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("encoding the review of user %q: %w", u.Name, err)
	}

	if allowed, ok := g.rights.Get(string(key)); ok {
		return allowed.(bool), nil
	}

	reply, err := g.config.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("reviewing the rights of user %q: %w", u.Name, err)
	}

	// A denial is cached for a shorter time, so that a new grant takes effect soon.
	life := deniedLife
	if reply.Status.Allowed {
		life = allowedLife
	}

	g.rights.Add(string(key), reply.Status.Allowed, life)
	return reply.Status.Allowed, nil
}
