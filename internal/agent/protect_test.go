// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestAccessFilter checks the status for each kind of client, that decisions are cached, that an unavailable API server denies access, and
// that no token appears in the log.
func TestAccessFilter(t *testing.T) {
	client := fake.NewClientset()
	var reviews atomic.Int32
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		reviews.Add(1)
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy() //nolint:forcetypeassert // A test of this type.
		switch review.Spec.Token {
		case "scraper", "stranger":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: review.Spec.Token, Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"scope": {"a"}},
			}}
		case "broken":
			return true, nil, errors.New("cannot review the token broken")
		}

		return true, review, nil
	})

	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy() //nolint:forcetypeassert // A test of this type.
		s := review.Spec
		review.Status.Allowed = s.User == "scraper" && s.Groups[0] == "g" && s.Extra["scope"][0] == "a" && s.NonResourceAttributes.Path == "/metrics" && s.NonResourceAttributes.Verb == "get"

		return true, review, nil
	})

	var log strings.Builder
	page := newAccessFilter(client, funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{})).wrap(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))

	get := func(path, header string) int {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		if header != "" {
			req.Header.Set("Authorization", header)
		}

		w := httptest.NewRecorder()
		page.ServeHTTP(w, req)
		return w.Code
	}

	for name, test := range map[string]struct {
		path, header string
		want         int
	}{
		"no token":     {"/metrics", "", http.StatusUnauthorized},
		"another kind": {"/metrics", "Basic c2NyYXBlcg==", http.StatusUnauthorized},
		"empty token":  {"/metrics", "Bearer ", http.StatusUnauthorized},
		"unknown":      {"/metrics", "Bearer nonsense", http.StatusUnauthorized},
		"no right":     {"/metrics", "Bearer stranger", http.StatusForbidden},
		"permitted":    {"/metrics", "Bearer scraper", http.StatusOK},
		"another path": {"/debug/pprof/heap", "Bearer scraper", http.StatusForbidden},
		"no answer":    {"/metrics", "Bearer broken", http.StatusInternalServerError},
	} {
		if got := get(test.path, test.header); got != test.want {
			t.Errorf("%s: status %d, want %d", name, got, test.want)
		}
	}

	before := reviews.Load()
	if got := get("/metrics", "Bearer scraper"); got != http.StatusOK || reviews.Load() != before {
		t.Errorf("status %d with %d further reviews, want the cached decision", got, reviews.Load()-before)
	}
	if got := get("/metrics", "Bearer broken"); got != http.StatusInternalServerError || reviews.Load() != before+1 {
		t.Errorf("status %d with %d further reviews, want errors not to be cached", got, reviews.Load()-before)
	}
	if text := log.String(); strings.Contains(text, "broken") || !strings.Contains(text, "TOKEN") {
		t.Errorf("log %s, want no token in it", text)
	}
}
