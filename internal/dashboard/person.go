// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"net/http"

	"crane.io/crane/internal/dashboard/contract"
)

// Person is a user who logged in with a token of the cluster.
type Person struct {
	// Name is the name by which the API server knows the user.
	Name  string
	Token string
	// Cluster is set if a Guard found that the person may read all nodes and pods. Data for such a person are not shared with others.
	Cluster bool
}

type personKey struct{}

// WithPerson returns a context whose requests to the API server carry the token of a person.
func WithPerson(ctx context.Context, p Person) context.Context {
	return context.WithValue(ctx, personKey{}, p)
}

// PersonOf returns the person of a context.
func PersonOf(ctx context.Context) (Person, bool) {
	p, ok := ctx.Value(personKey{}).(Person)
	return p, ok && p.Token != ""
}

var errNoPerson = errors.New("the request has no user")

// PersonalTransport sends each request with the token of the person in its context. A request without a person fails, so that no other
// credentials are used by mistake.
func PersonalTransport(base http.RoundTripper) http.RoundTripper { return personalTransport{base} }

type personalTransport struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t personalTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	p, ok := PersonOf(r.Context())
	if !ok {
		return nil, errNoPerson
	}

	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+p.Token)
	return t.base.RoundTrip(r)
}

// Right is a verb on a resource. An empty namespace means all namespaces, or a resource without namespaces.
type Right struct{ Verb, Group, Resource, Namespace string }

// String returns the right in words, such as "list pods in namespace shop".
func (r Right) String() string {
	text := r.Verb + " " + r.Resource
	if r.Group != "" {
		text += "." + r.Group
	}

	if r.Namespace == "" {
		return text + " in all namespaces"
	}

	return text + " in namespace " + r.Namespace
}

// forbidden returns the failure of a request that needs a right.
func forbidden(right Right) *ResponseError {
	f := NewResponseError(http.StatusForbidden, contract.ReasonForbidden, "you may not "+right.String(), "ask an administrator of the cluster for the right")
	f.Body.Right = right.String()
	return f
}
