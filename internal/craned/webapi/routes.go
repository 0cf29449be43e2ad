// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webapi

import (
	"net/http"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/component/version"
)

// route is one path of the API.
type route struct {
	path string
	// permission is the required permission; nil for public routes.
	permission func(*http.Request) authorizer.AttributesRecord
	// handle writes a response, or returns an error and has written nothing.
	handle func(http.ResponseWriter, *http.Request) error
}

// routes returns all routes.
func (a *API) routes() []route {
	return []route{
		{"/api/healthz", nil, func(w http.ResponseWriter, _ *http.Request) error {
			return writeData(w, map[string]string{"status": "ok"})
		}},
		{"/api/version", nil, func(w http.ResponseWriter, _ *http.Request) error { return writeData(w, version.JSON()) }},
		{"/api/v1/recommendation", namespacedListPermission(analysisv1alpha1.GroupVersion.Group, "recommendations"), a.recommendations},
		{"/api/v1/recommendationRule", listPermission(analysisv1alpha1.GroupVersion.Group, "recommendationrules"), a.rules},
		{"/api/v1/prometheus/query", prometheusPermission, a.query},
		{"/api/v1/prometheus/query_range", prometheusPermission, a.queryRange},
		{"/api/prediction/debug/{namespace}/{name}", predictionPermission, a.debug},
	}
}

// listPermission returns the permission to list a cluster-scoped resource.
func listPermission(group, resource string) func(*http.Request) authorizer.AttributesRecord {
	return func(*http.Request) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{
			Verb:            "list",
			APIGroup:        group,
			APIVersion:      "v1alpha1",
			Resource:        resource,
			ResourceRequest: true,
		}
	}
}

// namespacedListPermission returns the permission to list a resource of all namespaces, or of the one in the request.
func namespacedListPermission(group, resource string) func(*http.Request) authorizer.AttributesRecord {
	return func(r *http.Request) authorizer.AttributesRecord {
		needs := listPermission(group, resource)(r)
		needs.Namespace = r.URL.Query().Get("namespace")
		return needs
	}
}

// prometheusPath is the path that a ClusterRole names in nonResourceURLs to permit Prometheus queries. It differs from the route,
// because system:discovery permits every authenticated user to get paths below /api.
const prometheusPath = "/crane/prometheus"

func prometheusPermission(*http.Request) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{Verb: "get", Path: prometheusPath}
}

func predictionPermission(r *http.Request) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		Verb:            "get",
		APIGroup:        predictionv1alpha1.GroupVersion.Group,
		APIVersion:      "v1alpha1",
		Resource:        "timeseriespredictions",
		Namespace:       r.PathValue("namespace"),
		Name:            r.PathValue("name"),
		ResourceRequest: true,
	}
}
