// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"encoding/json"
	"net/http"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// aggregatedType is the media type of aggregated discovery.
const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// serveGroups serves /apis in the form that the client accepts: aggregated discovery, or the list of groups.
func serveGroups(w http.ResponseWriter, req *http.Request) {
	for _, accept := range req.Header.Values("Accept") {
		for part := range strings.SplitSeq(accept, ",") {
			if wantsAggregated(part) {
				w.Header().Set("Content-Type", aggregatedType)
				// Write errors mean that the client has disconnected.
				_ = json.NewEncoder(w).Encode(aggregated())
				return
			}
		}
	}
	reply(w, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{group()}})
}

func wantsAggregated(accept string) bool {
	compact := strings.ReplaceAll(accept, " ", "")
	return strings.HasPrefix(compact, "application/json") && strings.Contains(compact, ";g=apidiscovery.k8s.io") &&
		strings.Contains(compact, ";v=v2;") && strings.Contains(compact, ";as=APIGroupDiscoveryList")
}

func group() metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: Group + "/" + Version, Version: Version}
	return metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"},
		Name:     Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v,
	}
}

func resources() metav1.APIResourceList {
	verbs := metav1.Verbs{"get", "list"}
	return metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: Group + "/" + Version,
		APIResources: []metav1.APIResource{
			{Name: "nodes", Namespaced: false, Kind: "NodeMetrics", Verbs: verbs},
			{Name: "pods", Namespaced: true, Kind: "PodMetrics", Verbs: verbs},
		},
	}
}

func aggregated() apidiscoveryv2.APIGroupDiscoveryList {
	resource := func(name, kind string, scope apidiscoveryv2.ResourceScope) apidiscoveryv2.APIResourceDiscovery {
		return apidiscoveryv2.APIResourceDiscovery{
			Resource: name, Scope: scope, Verbs: []string{"get", "list"},
			ResponseKind: &metav1.GroupVersionKind{Group: Group, Version: Version, Kind: kind},
		}
	}
	return apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"},
		Items: []apidiscoveryv2.APIGroupDiscovery{{
			ObjectMeta: metav1.ObjectMeta{Name: Group},
			Versions: []apidiscoveryv2.APIVersionDiscovery{{
				Version: Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
				Resources: []apidiscoveryv2.APIResourceDiscovery{
					resource("nodes", "NodeMetrics", apidiscoveryv2.ScopeCluster),
					resource("pods", "PodMetrics", apidiscoveryv2.ScopeNamespace),
				},
			}},
		}},
	}
}

// cutSegments splits the path after a prefix.
func cutSegments(path, prefix string) ([]string, bool) {
	rest, ok := strings.CutPrefix(path, prefix+"/")
	if !ok {
		return nil, false
	}
	return strings.Split(strings.Trim(rest, "/"), "/"), true
}
