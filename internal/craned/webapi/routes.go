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
	// needs is what who asks has to be allowed to do; nil for what everybody may know.
	needs func(*http.Request) authorizer.AttributesRecord
	// answer writes an answer, or returns an error and has written nothing.
	answer func(http.ResponseWriter, *http.Request) error
}

// routes are all of them.
func (a *API) routes() []route {
	return []route{
		{"/api/healthz", nil, func(w http.ResponseWriter, _ *http.Request) error {
			return answer(w, map[string]string{"status": "ok"})
		}},
		{"/api/version", nil, func(w http.ResponseWriter, _ *http.Request) error { return answer(w, version.Long()) }},
		{"/api/v1/recommendation", toListNamespaced(analysisv1alpha1.GroupVersion.Group, "recommendations"), a.recommendations},
		{"/api/v1/recommendationRule", toList(analysisv1alpha1.GroupVersion.Group, "recommendationrules"), a.rules},
		{"/api/v1/prometheus/query", toAskPrometheus, a.query},
		{"/api/v1/prometheus/query_range", toAskPrometheus, a.queryRange},
		{"/api/prediction/debug/{namespace}/{name}", toGetPrediction, a.debug},
	}
}

// toList is the permission to list a resource of the cluster.
func toList(group, resource string) func(*http.Request) authorizer.AttributesRecord {
	return func(*http.Request) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: "list", APIGroup: group, APIVersion: "v1alpha1", Resource: resource, ResourceRequest: true}
	}
}

// toListNamespaced is the permission to list a resource of all namespaces, or of the one that the request names.
func toListNamespaced(group, resource string) func(*http.Request) authorizer.AttributesRecord {
	return func(r *http.Request) authorizer.AttributesRecord {
		needs := toList(group, resource)(r)
		needs.Namespace = r.URL.Query().Get("namespace")
		return needs
	}
}

// prometheusRight is the path that a ClusterRole names in nonResourceURLs to let somebody ask Prometheus. It is not the
// route's own: what is below /api everybody may get who is known to the cluster (system:discovery).
const prometheusRight = "/crane/prometheus"

func toAskPrometheus(*http.Request) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{Verb: "get", Path: prometheusRight}
}

func toGetPrediction(r *http.Request) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		Verb: "get", APIGroup: predictionv1alpha1.GroupVersion.Group, APIVersion: "v1alpha1", Resource: "timeseriespredictions",
		Namespace: r.PathValue("namespace"), Name: r.PathValue("name"), ResourceRequest: true,
	}
}
