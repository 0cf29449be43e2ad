// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/httpserver"
	"crane.io/crane/internal/component/tokenlimit"
	"crane.io/crane/internal/kube/slimclient"
)

// protect serves over TLS with a certificate for this node, and metrics and profiles to clients that the API server permits to get their
// paths, as craned does.
func protect(c *httpserver.Config, api *rest.Config, node string, log logr.Logger) error {
	client, err := slimclient.NewForConfig(api)
	if err != nil {
		return fmt.Errorf("--metrics-secure: %w", err)
	}

	certificate, key, err := cert.GenerateSelfSignedCertKey(node, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	if err != nil {
		return fmt.Errorf("--metrics-secure: making a certificate: %w", err)
	}

	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("--metrics-secure: making a certificate: %w", err)
	}

	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{pair}}
	c.Protect = newAccessFilter(client, log.WithName("metrics")).wrap
	return nil
}

const (
	// allowedTTL and deniedTTL are how long a decision of the API server is used.
	allowedTTL = time.Minute
	deniedTTL  = 10 * time.Second
	// maxDecisions is the maximum number of cached decisions.
	maxDecisions = 256
	// maxReviews is the maximum number of concurrent reviews by the API server; further clients are asked to retry.
	maxReviews = 4
	// reviewTimeout is the timeout of one decision.
	reviewTimeout = 10 * time.Second
)

// accessFilter permits requests by a TokenReview and a SubjectAccessReview. The filter of controller-runtime does the same, but links
// k8s.io/apiserver, which takes 20 MiB of resident memory on each node.
type accessFilter struct {
	client    slimclient.Interface
	log       logr.Logger
	decisions *utilcache.LRUExpireCache // HTTP status by decisionKey
	reviews   chan struct{}
}

// decisionKey is a hashed token and a path.
type decisionKey struct {
	token [sha256.Size]byte
	path  string
}

func newAccessFilter(client slimclient.Interface, log logr.Logger) *accessFilter {
	return &accessFilter{
		client:    client,
		log:       log,
		decisions: utilcache.NewLRUExpireCache(maxDecisions),
		reviews:   make(chan struct{}, maxReviews),
	}
}

// wrap returns a handler that responds with 401 to unknown clients and 403 to clients without the right to get the path.
func (f *accessFilter) wrap(next http.Handler) http.Handler {
	decide := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if status := f.decide(req); status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}

		next.ServeHTTP(w, req)
	})

	return tokenlimit.Handler(clock.RealClock{}, decide, tokenlimit.PlainError)
}

// decide returns the HTTP status of a request: 200, 401, 403, 429 while too many decisions are pending, or 500 if the API server fails.
func (f *accessFilter) decide(req *http.Request) int {
	token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if token = strings.TrimSpace(token); !ok || token == "" {
		return http.StatusUnauthorized
	}

	key := decisionKey{sha256.Sum256([]byte(token)), req.URL.Path}
	if cached, ok := f.decisions.Get(key); ok {
		if status, ok := cached.(int); ok {
			return status
		}
	}

	// A burst of unknown tokens must not load the API server.
	select {
	case f.reviews <- struct{}{}:
		defer func() { <-f.reviews }()
	default:
		return http.StatusTooManyRequests
	}

	ctx, cancel := context.WithTimeout(req.Context(), reviewTimeout)
	defer cancel()

	status, err := f.review(ctx, token, req.URL.Path)
	if err != nil {
		f.log.Error(err, "deciding on a request", "path", req.URL.Path)
		return http.StatusInternalServerError
	}

	ttl := deniedTTL
	if status == http.StatusOK {
		ttl = allowedTTL
	}

	f.decisions.Add(key, status, ttl)
	return status
}

// review requests from the API server the owner of a token and whether it may get a path.
func (f *accessFilter) review(ctx context.Context, token, path string) (int, error) {
	tokenReview, err := f.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, errors.New("TokenReview: " + strings.ReplaceAll(err.Error(), token, "TOKEN"))
	}

	if !tokenReview.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}

	user := tokenReview.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}

	access, err := f.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:                  user.Username,
			Groups:                user.Groups,
			UID:                   user.UID,
			Extra:                 extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("SubjectAccessReview: %w", err)
	}

	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}

	return http.StatusOK, nil
}
