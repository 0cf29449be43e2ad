// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"crane.io/crane/internal/dashboard/contract"
)

// fakeReviewer is an API server that answers reviews: the token of a person is its name, and rights are lines such as "ann list pods shop".
type fakeReviewer struct {
	*httptest.Server
	mu      sync.Mutex
	rights  []string
	revoked map[string]bool
	asked   []string
}

func newFakeReviewer(t *testing.T, rights ...string) *fakeReviewer {
	t.Helper()

	f := &fakeReviewer{rights: rights, revoked: map[string]bool{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)

	return f
}

// ServeHTTP implements http.Handler.
func (f *fakeReviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()

	name, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	name, _, _ = strings.Cut(name, ".")
	w.Header().Set("Content-Type", "application/json")

	if name == "" || f.revoked[name] {
		status := apierrors.NewUnauthorized("no").Status()
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(status)

		return
	}

	if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
		f.asked = append(f.asked, name)
		fmt.Fprintf(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":%q}}}`, name)
		return
	}

	var review authorizationv1.SelfSubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}

	a := review.Spec.ResourceAttributes
	line := strings.Join([]string{name, a.Verb, a.Resource, a.Namespace}, " ")
	f.asked = append(f.asked, line)
	review.Status.Allowed = slices.Contains(f.rights, line) || slices.Contains(f.rights, strings.Join([]string{name, a.Verb, a.Resource, ""}, " "))
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
	_ = json.NewEncoder(w).Encode(review)
}

// take returns the reviews since the last call.
func (f *fakeReviewer) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()

	out := f.asked
	f.asked = nil
	return out
}

type clusterFixture struct {
	*fixture
	api     *fakeReviewer
	reviews *Reviews
}

// setupCluster returns a server in a cluster, with rows in three namespaces.
func setupCluster(t *testing.T, rights ...string) *clusterFixture {
	t.Helper()

	f := &clusterFixture{fixture: setup(t), api: newFakeReviewer(t, rights...)}
	var err error
	if f.reviews, err = NewReviews(&rest.Config{Host: f.api.URL}, f.clock); err != nil {
		t.Fatal(err)
	}

	var rows []contract.Row
	for _, namespace := range []string{"shop", "shop", "pay", "db"} {
		rows = append(rows, contract.Row{Cluster: "prod", Namespace: namespace, Kind: "Rollout", APIVersion: "argoproj.io/v1", Workload: "web", Type: "Resource"})
	}

	f.prod.list = NewWorklist(rows, "USD", contract.Origin{})
	config := f.config
	config.Mode = contract.ModeCluster
	config.User = ""
	config.Reviews = f.reviews
	config.Backends = []Backend{NewGuard(f.prod, f.reviews)}
	f.Server = New(config, &net.TCPAddr{Port: 8443})

	return f
}

func as(t *testing.T, name string) context.Context {
	t.Helper()
	return WithPerson(t.Context(), Person{Name: name, Token: name})
}

// TestGuardFiltersRows checks the rows of persons, that equal rights share a worklist, and that no row is shown when a review fails.
func TestGuardFiltersRows(t *testing.T) {
	f := setupCluster(t, "ann list recommendations shop", "amy list recommendations shop", "root list recommendations ")
	g := f.config.Backends[0]
	ann, err := g.Worklist(as(t, "ann"))
	if err != nil || len(ann.Rows) != 2 || ann.Rows[0].Namespace != "shop" || !ann.Hidden {
		t.Fatalf("Worklist(ann) = %+v, %v, want the 2 rows of shop and that others are hidden", ann, err)
	}

	if amy, err := g.Worklist(as(t, "amy")); err != nil || amy != ann {
		t.Errorf("Worklist(amy) = %v, want the list of ann, who has the same rights", err)
	}
	if root, err := g.Worklist(as(t, "root")); err != nil || root != f.prod.list {
		t.Errorf("Worklist(root) = %v, want the list itself without a copy", err)
	}

	var refused *ResponseError
	if _, err := g.Worklist(as(t, "eve")); !errors.As(err, &refused) || refused.Status != http.StatusForbidden || refused.Body.Right == "" {
		t.Errorf("Worklist(eve) = %v, want a refusal that names the right", err)
	}
	if _, err := g.Worklist(t.Context()); !errors.Is(err, errNoPerson) {
		t.Errorf("Worklist without a person = %v, want %v", err, errNoPerson)
	}

	f.clock.Step(reviewTTL)
	f.api.Close()

	if _, err := g.Worklist(as(t, "ann")); err == nil || FailureOf(err).Body.Reason != contract.ReasonAPIServerUnavailable {
		t.Errorf("Worklist without an API server = %v, want the reason %s", err, contract.ReasonAPIServerUnavailable)
	}
}

// TestGuardOfCustomKinds checks that the page of a workload of another kind needs the right to that kind.
func TestGuardOfCustomKinds(t *testing.T) {
	rights := []string{"ann list recommendations shop", "ann list pods shop"}
	f := setupCluster(t, rights...)
	target := contract.Target{Cluster: "prod", Namespace: "shop", Kind: "Rollout", Name: "web"}
	may := func() error {
		g, _ := f.config.Backends[0].(*Guard)
		_, err := g.mayReadWorkload(as(t, "ann"), target)
		return err
	}

	if err := may(); err == nil || FailureOf(err).Body.Right != "list rollouts.argoproj.io in namespace shop" {
		t.Errorf("without the right to Rollouts: %v, want a refusal that names it", err)
	}

	f.api.mu.Lock()
	f.api.rights = append(f.api.rights, "ann list rollouts shop")
	f.api.mu.Unlock()
	f.clock.Step(reviewTTL)

	if may() != nil {
		t.Errorf("with the right to Rollouts: %v, want no error", may())
	}

	target.Name = "other"

	if may() == nil {
		t.Error("a workload of an unknown kind is shown, want an error")
	}
}

// TestReviewsAreCached checks that the API server is asked once a minute for each token and right, and that a revoked token ends then.
func TestReviewsAreCached(t *testing.T) {
	f := setupCluster(t, "ann list recommendations shop")
	login := f.do(t, http.MethodPost, contract.Prefix+contract.PathLogin, `{"token":"ann"}`)
	if login.Code != http.StatusOK {
		t.Fatalf("login: status %d, want %d: %s", login.Code, http.StatusOK, login.Body)
	}

	f.cookie = login.Result().Cookies()[0]
	if f.cookie.Name != "__Host-crane-dashboard" || !f.cookie.Secure || !f.cookie.HttpOnly || f.cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("cookie = %+v, want a secure one with the prefix __Host- for this site", f.cookie)
	}

	list := func() int { return f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, "").Code }
	f.api.take()

	for range 3 {
		if status := list(); status != http.StatusOK {
			t.Fatalf("worklist: status %d, want %d", status, http.StatusOK)
		}
	}

	if asked := f.api.take(); len(asked) > 0 {
		t.Errorf("requests to the API server within a minute: %v, want none", asked)
	}

	f.clock.Step(reviewTTL)
	list()

	if len(f.api.take()) == 0 {
		t.Error("no request to the API server after a minute, want a new review")
	}

	f.api.mu.Lock()
	rights := f.api.rights
	f.api.rights = nil
	f.api.mu.Unlock()
	f.clock.Step(reviewTTL)

	if list() != http.StatusForbidden {
		t.Error("a right that was withdrawn is used after a minute, want a refusal")
	}

	f.api.mu.Lock()
	f.api.rights = rights
	f.api.revoked["ann"] = true
	f.api.mu.Unlock()
	f.clock.Step(reviewTTL)

	if status := list(); status != http.StatusServiceUnavailable {
		t.Errorf("a token that is refused for the first time: status %d, want %d", status, http.StatusServiceUnavailable)
	}

	// The API server had started and accepts it again.
	setRevoked := func(revoked bool) {
		f.api.mu.Lock()
		defer f.api.mu.Unlock()

		f.api.revoked["ann"] = revoked
	}

	f.clock.Step(refusalGrace - time.Second)
	setRevoked(false)

	if status := list(); status != http.StatusOK {
		t.Errorf("a token that is accepted again: status %d, want %d", status, http.StatusOK)
	}

	setRevoked(true)
	for _, want := range []int{http.StatusServiceUnavailable, http.StatusUnauthorized} {
		f.clock.Step(reviewTTL)
		if status := list(); status != want {
			t.Errorf("a revoked token: status %d, want %d", status, want)
		}
	}

	setRevoked(false)
	if status := list(); status != http.StatusUnauthorized {
		t.Errorf("worklist with a revoked token: status %d, want %d", status, http.StatusUnauthorized)
	}
}

// TestSessionEndsWithTheToken checks that a session is not longer than its token.
func TestSessionEndsWithTheToken(t *testing.T) {
	f := setupCluster(t, "ann list recommendations ")
	claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, f.clock.Now().Add(10*time.Second).Unix()))
	login := f.do(t, http.MethodPost, contract.Prefix+contract.PathLogin, `{"token":"ann.`+claims+`.x"}`)
	if login.Code != http.StatusOK {
		t.Fatalf("login: status %d, want %d: %s", login.Code, http.StatusOK, login.Body)
	}

	f.cookie = login.Result().Cookies()[0]
	list := func() int { return f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, "").Code }
	if status := list(); status != http.StatusOK {
		t.Errorf("worklist: status %d, want %d", status, http.StatusOK)
	}

	f.clock.Step(11 * time.Second)

	if list() != http.StatusUnauthorized {
		t.Error("the session outlives its token, want it ended")
	}
}

// TestUnknownTokensAreBounded checks that unknown tokens are not all sent to the API server, and that persons are not shut out.
func TestUnknownTokensAreBounded(t *testing.T) {
	f := setupCluster(t, "ann list recommendations ")
	list := func(token string) int {
		return f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, "", "Authorization", "Bearer "+token).Code
	}

	if status := list("ann"); status != http.StatusOK {
		t.Fatalf("worklist of ann: status %d, want %d", status, http.StatusOK)
	}

	f.api.take()
	busy := 0
	for i := range 3 * newTokensBurst {
		name := fmt.Sprintf("guess%d", i)
		f.api.mu.Lock()
		f.api.revoked[name] = true
		f.api.mu.Unlock()

		if list(name) == http.StatusTooManyRequests {
			busy++
		}
	}

	if busy < 2*newTokensBurst {
		t.Errorf("%d of %d unknown tokens were refused without a review, want at least %d", busy, 3*newTokensBurst, 2*newTokensBurst)
	}
	if status := list("ann"); status != http.StatusOK {
		t.Errorf("worklist of a known person: status %d, want %d", status, http.StatusOK)
	}
	if status := list(strings.Repeat("x", maxToken+1)); status != http.StatusUnauthorized {
		t.Errorf("worklist with a long token: status %d, want %d", status, http.StatusUnauthorized)
	}
}

// TestGuardOverview checks that persons without the right to the cluster get an overview that names the right, and that no request fails.
func TestGuardOverview(t *testing.T) {
	f := setupCluster(t, "ann list recommendations shop", "root list recommendations ", "root list nodes ", "root list pods ")
	g := f.config.Backends[0]
	overview := func(name string) contract.Overview {
		t.Helper()

		list, err := g.Worklist(as(t, name))
		if err != nil {
			t.Fatal(err)
		}

		out, err := g.Overview(as(t, name), list)
		if err != nil {
			t.Fatal(err)
		}

		return out
	}

	out := overview("ann")
	if missing := out.Missing[contract.MissingCost]; missing.Reason != contract.ReasonForbidden || missing.Right != "list nodes in all namespaces" || f.prod.cluster || out.Coverage.Workloads != 2 {
		t.Errorf("overview of ann misses %+v, cluster %v, coverage %+v, want no cost, with the missing right, and 2 workloads", out.Missing, f.prod.cluster, out.Coverage)
	}
	if out := overview("root"); len(out.Missing) != 0 || !f.prod.cluster {
		t.Errorf("overview of root misses %+v, cluster %v, want nothing missing", out.Missing, f.prod.cluster)
	}
}

// TestMissingRight checks the right that the API server names in its errors.
func TestMissingRight(t *testing.T) {
	for message, want := range map[string]string{
		`reading ConfigMap: configmaps "crane-savings" is forbidden: User "ann" cannot get resource "configmaps" in API group "" in the namespace "crane-system"`:               "get configmaps/crane-savings in namespace crane-system",
		`nodes is forbidden: User "ann" cannot list resource "nodes" in API group "" at the cluster scope`:                                                                      "list nodes in all namespaces",
		`recommendations.analysis.crane.io "web" is forbidden: User "ann" cannot patch resource "recommendations" in API group "analysis.crane.io" in the namespace "shop": no`: "patch recommendations.analysis.crane.io/web in namespace shop",
		`a webhook denied the request`: "",
	} {
		if got := missingRight(message); got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
}
