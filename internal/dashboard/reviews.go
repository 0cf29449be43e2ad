// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	limiter "golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"crane.io/crane/internal/component/recovery"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/metrics"
)

const (
	// reviewTTL is how long the API server's answers about a token are used. A revoked token or right ends after this time.
	reviewTTL = time.Minute
	// refusalGrace is how long an accepted token must be refused before its sessions end. An API server that starts refuses tokens of service
	// accounts until it has read them.
	refusalGrace = 10 * time.Second
	// maxPersons and maxRights bound the cache: tokens, and rights of each token.
	maxPersons, maxRights = 1024, 4096
	// Tokens that are not in the cache are sent to the API server at this rate at most, because anybody can send them.
	newTokensPerSecond, newTokensBurst = 10, 50
	// parallelReviews bounds the concurrent reviews of one request.
	parallelReviews = 8
	// maxToken bounds the length of a token, in bytes.
	maxToken = 16 << 10
)

// Reviews asks the API server who sends a token and what that person may do, with the token itself, and caches the answers.
type Reviews struct {
	client  kubernetes.Interface
	clock   clock.PassiveClock
	persons *lru.Cache
	unknown *limiter.Limiter
}

// reviewed are the answers about one token.
type reviewed struct {
	mu     sync.Mutex
	name   string
	until  time.Time
	rights map[Right]decision
	// refused is the time of the first refusal after the last acceptance, zero for none.
	refused time.Time
}

// refuse records a refusal and reports whether the token is refused for good. The caller holds the lock.
func (k *reviewed) refuse(now time.Time) bool {
	if k.refused.IsZero() {
		k.refused = now
	}

	k.until = time.Time{} // asks again with the next request
	return now.Sub(k.refused) >= refusalGrace
}

type decision struct {
	allowed bool
	until   time.Time
}

// NewReviews returns reviews for the API server of a configuration, whose credentials are not used.
func NewReviews(config *rest.Config, clock clock.PassiveClock) (*Reviews, error) {
	config = rest.AnonymousClientConfig(config)
	config.Wrap(PersonalTransport)
	config.ContentType = "application/json"
	config.QPS = 200
	config.Burst = 400

	config.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", config.Host, err)
	}

	return newReviews(client, clock), nil
}

func newReviews(client kubernetes.Interface, clock clock.PassiveClock) *Reviews {
	return &Reviews{
		client:  client,
		clock:   clock,
		persons: lru.New(maxPersons),
		unknown: limiter.NewLimiter(newTokensPerSecond, newTokensBurst),
	}
}

// Identify returns the person who sends a token. The error of a token that the API server does not accept is Unauthorized.
func (r *Reviews) Identify(ctx context.Context, token string) (Person, error) {
	p := Person{Token: token}
	if token == "" || len(token) > maxToken {
		return p, apierrors.NewUnauthorized("the token is empty or too long")
	}

	key := sha256.Sum256([]byte(token))
	cached := r.known(key)
	if cached == nil && !r.unknown.AllowN(r.clock.Now(), 1) {
		return p, NewResponseError(http.StatusTooManyRequests, contract.ReasonBusy, "too many logins at the same time", "repeat the login in some seconds")
	}

	if cached != nil {
		cached.mu.Lock()
		defer cached.mu.Unlock()

		p.Name = cached.name

		if r.clock.Now().Before(cached.until) {
			return p, nil
		}
	}

	answer, err := r.client.AuthenticationV1().SelfSubjectReviews().Create(WithPerson(ctx, p), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err) && cached != nil && !cached.refuse(r.clock.Now()):
		return p, errRefusedForNow()
	case apierrors.IsUnauthorized(err):
		r.persons.Remove(key)
		return p, err
	case apierrors.IsForbidden(err): // An anonymous user: the token was not read at all.
		return p, apierrors.NewUnauthorized(err.Error())
	case err != nil:
		return p, NewResponseError(http.StatusServiceUnavailable, contract.ReasonAPIServerUnavailable, "the API server does not say who you are: "+metrics.PublicMessage(err), "the page repeats the request")
	}

	p.Name = answer.Status.UserInfo.Username
	until := r.clock.Now().Add(reviewTTL)
	if cached != nil {
		cached.name = p.Name
		cached.until = until
		cached.refused = time.Time{}

		return p, nil
	}

	r.persons.Add(key, &reviewed{name: p.Name, until: until, rights: map[Right]decision{}})
	return p, nil
}

func (r *Reviews) known(key [sha256.Size]byte) *reviewed {
	if found, ok := r.persons.Get(key); ok {
		cached, _ := found.(*reviewed)
		return cached
	}

	return nil
}

// Refuse records that the API server refused a token, and reports whether its sessions end: tokens that were accepted before have a grace.
func (r *Reviews) Refuse(token string) bool {
	key := sha256.Sum256([]byte(token))
	if cached := r.known(key); cached != nil {
		cached.mu.Lock()
		defer cached.mu.Unlock()

		if !cached.refuse(r.clock.Now()) {
			return false
		}
	}

	r.persons.Remove(key)
	return true
}

func errRefusedForNow() *ResponseError {
	return NewResponseError(http.StatusServiceUnavailable, contract.ReasonAPIServerUnavailable, "the API server does not accept your token at the moment; it may be starting", "the page repeats the request")
}

// Allowed reports whether the person of a context has a right.
func (r *Reviews) Allowed(ctx context.Context, right Right) (bool, error) {
	p, ok := PersonOf(ctx)
	if !ok {
		return false, errNoPerson
	}

	cached := r.known(sha256.Sum256([]byte(p.Token)))
	if cached != nil {
		cached.mu.Lock()
		last, found := cached.rights[right]
		cached.mu.Unlock()

		if found && r.clock.Now().Before(last.until) {
			return last.allowed, nil
		}
	}

	// The lock is not held during the request: a slow API server delays nobody else.
	allowed, err := SelfReview(ctx, r.client, right)
	if apierrors.IsUnauthorized(err) {
		return false, err
	}
	if err != nil {
		return false, NewResponseError(http.StatusServiceUnavailable, contract.ReasonAPIServerUnavailable, fmt.Sprintf("the API server does not say whether you may %s: %s", right, metrics.PublicMessage(err)), "the page repeats the request")
	}

	if cached != nil {
		cached.mu.Lock()
		defer cached.mu.Unlock()

		if len(cached.rights) >= maxRights {
			clear(cached.rights)
		}
		cached.rights[right] = decision{allowed: allowed, until: r.clock.Now().Add(reviewTTL)}
	}

	return allowed, nil
}

// SelfReview asks the API server whether the user of a client has a right.
func SelfReview(ctx context.Context, client kubernetes.Interface, right Right) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb:      right.Verb,
			Group:     right.Group,
			Resource:  right.Resource,
			Namespace: right.Namespace,
		},
	}}

	answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}

	return answer.Status.Allowed, nil
}

// require returns nil if the person of a context has all of the rights.
func (r *Reviews) require(ctx context.Context, rights ...Right) error {
	for _, right := range rights {
		allowed, err := r.Allowed(ctx, right)
		if err != nil {
			return err
		}

		if !allowed {
			return forbidden(right)
		}
	}

	return nil
}

// allowedIn returns the namespaces in which the person of a context has a right; all is true if it has the right in all namespaces.
func (r *Reviews) allowedIn(ctx context.Context, right Right, namespaces []string) (in map[string]bool, all bool, err error) {
	right.Namespace = ""
	if all, err = r.Allowed(ctx, right); err != nil || all {
		return nil, all, err
	}

	in = map[string]bool{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelReviews)

	for _, namespace := range namespaces {
		review := right
		review.Namespace = namespace

		if namespace == "" {
			continue // needs the right in all namespaces
		}

		group.Go(func() error {
			return recovery.Call(ctx, func() error {
				allowed, err := r.Allowed(ctx, review)
				if err != nil || !allowed {
					return err
				}

				mu.Lock()
				defer mu.Unlock()

				in[namespace] = true
				return nil
			})
		})
	}

	return in, false, group.Wait()
}
