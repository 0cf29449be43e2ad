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

// route is one thing that can be asked.
type route struct {
	path string
	// permission is what who asks has to be allowed to do; nil for what everybody may know.
	permission func(*http.Request) authorizer.AttributesRecord
	// handle writes an answer, or returns an error and has written nothing.
	handle func(http.ResponseWriter, *http.Request) error
}

// routes are all of them.
func (a *API) routes() []route {
	return []route{
		{"/api/healthz", nil, func(w http.ResponseWriter, _ *http.Request) error {
			return writeData(w, map[string]string{"status": "ok"})
		}},
		{"/api/version", nil, func(w http.ResponseWriter, _ *http.Request) error { return writeData(w, version.Long()) }},
		{"/api/v1/recommendation", namespacedListPermission(analysisv1alpha1.GroupVersion.Group, "recommendations"), a.recommendations},
		{"/api/v1/recommendationRule", listPermission(analysisv1alpha1.GroupVersion.Group, "recommendationrules"), a.rules},
		{"/api/v1/prometheus/query", prometheusPermission, a.query},
		{"/api/v1/prometheus/query_range", prometheusPermission, a.queryRange},
		{"/api/prediction/debug/{namespace}/{name}", predictionPermission, a.debug},
	}
}

// listPermission is the permission to list a resource of the cluster.
func listPermission(group, resource string) func(*http.Request) authorizer.AttributesRecord {
	return func(*http.Request) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: "list", APIGroup: group, APIVersion: "v1alpha1", Resource: resource, ResourceRequest: true}
	}
}

// namespacedListPermission is the permission to list a resource of all namespaces, or of the one that the request names.
func namespacedListPermission(group, resource string) func(*http.Request) authorizer.AttributesRecord {
	return func(r *http.Request) authorizer.AttributesRecord {
		needs := listPermission(group, resource)(r)
		needs.Namespace = r.URL.Query().Get("namespace")
		return needs
	}
}

// prometheusPath is the path that a ClusterRole names in nonResourceURLs to let somebody ask Prometheus. It is not the
// route's own: what is below /api everybody may get who is known to the cluster (system:discovery).
const prometheusPath = "/crane/prometheus"

func prometheusPermission(*http.Request) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{Verb: "get", Path: prometheusPath}
}

func predictionPermission(r *http.Request) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		Verb: "get", APIGroup: predictionv1alpha1.GroupVersion.Group, APIVersion: "v1alpha1", Resource: "timeseriespredictions",
		Namespace: r.PathValue("namespace"), Name: r.PathValue("name"), ResourceRequest: true,
	}
}
