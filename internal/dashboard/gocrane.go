// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/dashboard/contract"
)

// gocranePrefix is the beginning of the routes of gocrane's web API that craned does not serve, because they write or name clusters and
// namespaces. Their answers have gocrane's form; rights and CSRF token are those of the other routes.
const gocranePrefix = "/api/v1"

// gocraneAnswer is the form of gocrane's answers. A request that fails has the status 200; one without access has its own.
type gocraneAnswer struct {
	Error string `json:"error"`
	Data  any    `json:"data"`
}

// gocraneList is the form of gocrane's lists.
type gocraneList[T any] struct {
	TotalCount int `json:"totalCount"`
	Items      []T `json:"items"`
}

// gocraneCluster is a cluster as gocrane's page knows it. Its address is that of this server.
type gocraneCluster struct {
	ID                       string `json:"id"`
	Name                     string `json:"name"`
	CraneURL                 string `json:"craneUrl"`
	GrafanaURL               string `json:"grafanaUrl"`
	Discount                 int    `json:"discount"`
	PreinstallRecommendation bool   `json:"preinstallRecommendation"`
	DashboardControl         bool   `json:"dashboardControl"`
}

func (s *Server) gocraneRoutes() {
	scheme := "http"
	if s.config.Reviews != nil {
		scheme = "https"
	}

	s.gocrane("GET /cluster", func(r *http.Request) (any, error) {
		all := gocraneList[gocraneCluster]{Items: []gocraneCluster{}}
		for _, b := range s.backends {
			all.Items = append(all.Items, newGocraneCluster(scheme, r.Host, b.Name()))
		}

		all.TotalCount = len(all.Items)
		return all, nil
	})

	s.gocrane("GET /cluster/{cluster}", func(r *http.Request) (any, error) {
		b, err := s.backends.of(r)
		if err != nil {
			return nil, err
		}

		return newGocraneCluster(scheme, r.Host, b.Name()), nil
	})

	// gocrane's page writes clusters; the refusal names the way to do it here.
	for _, route := range []string{"POST /cluster", "PUT /cluster/{cluster}", "DELETE /cluster/{cluster}"} {
		s.gocrane(route, func(*http.Request) (any, error) {
			return nil, NotServed("clusters are not stored: they are the contexts with which crane dashboard is started", "crane dashboard --context prod --context staging")
		})
	}

	s.gocrane("GET /namespaces/{cluster}", personal(s, listNamespaces))
	s.gocrane("GET /recommendationRule", personal(s, func(ctx context.Context, c client.Client, _ *http.Request) (any, error) {
		var list analysisv1alpha1.RecommendationRuleList
		return &list, c.List(ctx, &list)
	}))

	s.gocrane("POST /recommendationRule", personal(s, createRuleObject))
	s.gocrane("PUT /recommendationRule/{rule}", personal(s, replaceRule))
	s.gocrane("DELETE /recommendationRule/{rule}", personal(s, func(ctx context.Context, c client.Client, r *http.Request) (any, error) {
		rule := &analysisv1alpha1.RecommendationRule{}
		rule.Name = r.PathValue("rule")
		return nil, c.Delete(ctx, rule)
	}))

	s.gocrane("POST /recommendation/adopt/{namespace}/{recommendation}", s.gocraneAdopt)
}

// gocrane registers a route. Requests that write need the CSRF token and are logged.
func (s *Server) gocrane(route string, answer func(r *http.Request) (any, error)) {
	method, path, _ := strings.Cut(route, " ")
	writes := method != http.MethodGet
	s.mux.HandleFunc(method+" "+gocranePrefix+path, func(w http.ResponseWriter, r *http.Request) {
		account, r, err := s.authenticate(r)
		if err == nil && writes {
			err = checkCSRF(r, account)
		}

		end := func() {}
		if err == nil {
			end, err = s.places.startWork(accountOf(account.person))
		}

		var out gocraneAnswer
		if err == nil {
			defer end()

			out.Data, err = answer(r)
			if writes {
				s.audit.record(r.Context(), err, "action", method+" "+r.URL.Path)
			}
		}

		leavePlace(r.Context())

		if err != nil {
			failure := FailureOf(s.endIfUnauthorized(r, err))
			out.Error = failure.Body.Message
			out.Data = nil
			// Other failures have the status 200, with the error in the body, as gocrane's page reads them.
			if slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests}, failure.Status) {
				sendJSON(w, failure.Status, out)
				return
			}
		}

		sendJSON(w, http.StatusOK, out)
	})
}

// newGocraneCluster describes a cluster whose address is that of the request.
func newGocraneCluster(scheme, host, name string) gocraneCluster {
	return gocraneCluster{
		ID:       name,
		Name:     name,
		CraneURL: scheme + "://" + host,
		Discount: 100,
	}
}

// personal returns the answer of a route that reads or writes objects with the rights of the person, in the cluster of the path or of
// ?cluster=.
func personal(s *Server, read func(context.Context, client.Client, *http.Request) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		b, err := s.backends.of(r)
		if err != nil {
			return nil, err
		}

		c, err := b.Objects()
		if err != nil {
			return nil, err
		}

		return read(r.Context(), c, r)
	}
}

func listNamespaces(ctx context.Context, c client.Client, _ *http.Request) (any, error) {
	var list corev1.NamespaceList
	if err := c.List(ctx, &list); err != nil {
		return nil, err
	}

	out := gocraneList[string]{TotalCount: len(list.Items), Items: []string{}}
	for i := range list.Items {
		out.Items = append(out.Items, list.Items[i].Name)
	}

	return out, nil
}

func createRuleObject(ctx context.Context, c client.Client, r *http.Request) (any, error) {
	rule := &analysisv1alpha1.RecommendationRule{}
	if err := decode(r, rule); err != nil {
		return nil, err
	}

	rule.ResourceVersion, rule.UID = "", ""
	return nil, c.Create(ctx, rule, client.FieldOwner("crane"))
}

// replaceRule replaces the spec of a rule.
func replaceRule(ctx context.Context, c client.Client, r *http.Request) (any, error) {
	wanted := &analysisv1alpha1.RecommendationRule{}
	rule := &analysisv1alpha1.RecommendationRule{}

	if err := decode(r, wanted); err != nil {
		return nil, err
	}

	name := r.PathValue("rule")
	if wanted.Name != name {
		return nil, invalid("the rule of the body is %q, that of the path %q", wanted.Name, name)
	}

	if err := c.Get(ctx, client.ObjectKey{Name: name}, rule); err != nil {
		return nil, err
	}

	rule.Spec = wanted.Spec
	return nil, c.Update(ctx, rule, client.FieldOwner("crane"))
}

// gocraneAdopt adopts a recommendation. gocrane patched the workload at once; craned applies the recommendation in steps.
func (s *Server) gocraneAdopt(r *http.Request) (any, error) {
	b, err := s.backends.of(r)
	if err != nil {
		return nil, err
	}

	item := contract.Item{Cluster: b.Name(), Namespace: r.PathValue("namespace"), Name: r.PathValue("recommendation")}
	results, err := b.Act(r.Context(), contract.ActionAdopt, false, []contract.Item{item})
	if err != nil {
		return nil, err
	}

	return nil, itemError(results[0])
}
