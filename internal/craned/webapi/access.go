// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webapi

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Cache durations of the API server's answers. A revoked token or right is rejected after a minute, a newly granted one is
// accepted after ten seconds.
const (
	tokenTTL   = time.Minute
	allowTTL   = time.Minute
	denyTTL    = 10 * time.Second
	askTimeout = 10 * time.Second
)

// NewDelegatedAuth returns an authenticator (TokenReview) and an authorizer (SubjectAccessReview) that use the API server.
func NewDelegatedAuth(config *rest.Config) (authenticator.Request, authorizer.Authorizer, error) {
	tokens, err := authenticationv1.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("building the client of token reviews: %w", err)
	}

	access, err := authorizationv1.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("building the client of access reviews: %w", err)
	}

	backoff := &wait.Backoff{
		Duration: 500 * time.Millisecond,
		Factor:   1.5,
		Jitter:   0.2,
		Steps:    3,
	}

	// Without a credential a request is refused: the API has no anonymous clients.
	authn, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                &apiserver.AnonymousAuthConfig{Enabled: false},
		CacheTTL:                 tokenTTL,
		TokenAccessReviewClient:  tokens,
		TokenAccessReviewTimeout: askTimeout,
		WebhookRetryBackoff:      backoff,
	}.New()
	if err != nil {
		return nil, nil, fmt.Errorf("building the authenticator: %w", err)
	}

	authz, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: access,
		AllowCacheTTL:             allowTTL,
		DenyCacheTTL:              denyTTL,
		WebhookRetryBackoff:       backoff,
	}.New()
	if err != nil {
		return nil, nil, fmt.Errorf("building the authorizer: %w", err)
	}

	return authn, authz, nil
}

// authorize reports whether the user may use a route, and writes the error response otherwise. If the API server fails to decide,
// access is denied.
func (a *API) authorize(w http.ResponseWriter, r *http.Request, needs authorizer.AttributesRecord) bool {
	logger := log.FromContext(r.Context())
	identity, ok, err := a.config.Authenticator.AuthenticateRequest(r)
	if err != nil {
		logger.V(1).Info("rejected a token", "reason", err.Error())
	}

	// A client learns why it is refused only once it is known.
	if err != nil || !ok {
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeError(w, http.StatusUnauthorized, "send a bearer token of the cluster")
		return false
	}

	needs.User = identity.User
	decision, reason, err := a.config.Authorizer.Authorize(r.Context(), needs)
	if err != nil {
		logger.Error(err, "reviewing access to the web API")
		writeError(w, http.StatusServiceUnavailable, "the API server does not say whether this is allowed")
		return false
	}

	if decision != authorizer.DecisionAllow {
		logger.V(1).Info("denied a request", "user", identity.User.GetName(), "reason", reason)
		writeError(w, http.StatusForbidden, fmt.Sprintf("user %q may not %s", identity.User.GetName(), describePermission(needs)))
		return false
	}

	return true
}

func describePermission(needs authorizer.AttributesRecord) string {
	if !needs.ResourceRequest {
		return needs.Verb + " " + needs.Path
	}

	text := needs.Verb + " " + needs.Resource + "." + needs.APIGroup
	if needs.Namespace != "" {
		text += " in namespace " + needs.Namespace
	}

	return text
}
