// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Names of the Service and the APIService, which are those of metrics-server.
const (
	namespace   = metav1.NamespaceSystem
	serviceName = "metrics-server"
	apiService  = "v1beta1.metrics.k8s.io"
	fieldOwner  = "crane-simnode"
)

// Hosts returns the host names for which the aggregator verifies the serving certificate.
func Hosts() []string { return []string{serviceName + "." + namespace + ".svc"} }

// Install creates the APIService and an ExternalName Service that lead to a port of this machine. It may be called
// again with another port.
func Install(ctx context.Context, client kubernetes.Interface, ca []byte, port int) error {
	if err := installService(ctx, client); err != nil {
		return err
	}

	want := apiregistrationv1.APIService{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiregistration.k8s.io/v1", Kind: "APIService"},
		ObjectMeta: metav1.ObjectMeta{Name: apiService},
		Spec: apiregistrationv1.APIServiceSpec{
			Group:                Group,
			Version:              Version,
			GroupPriorityMinimum: 100,
			VersionPriority:      100,
			CABundle:             ca,
			Service:              &apiregistrationv1.ServiceReference{Namespace: namespace, Name: serviceName, Port: new(int32(port))},
		},
	}

	// The object is applied without its status.
	body, err := json.Marshal(struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              apiregistrationv1.APIServiceSpec `json:"spec"`
	}{want.TypeMeta, want.ObjectMeta, want.Spec})
	if err != nil {
		return fmt.Errorf("encoding API service %s: %w", apiService, err)
	}

	err = client.CoreV1().RESTClient().Patch("application/apply-patch+yaml").
		AbsPath("/apis/apiregistration.k8s.io/v1/apiservices", apiService).
		Param("fieldManager", fieldOwner).Param("force", "true").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("installing API service %s: %w", apiService, err)
	}

	return nil
}

// installService creates the ExternalName Service that leads to this machine.
func installService(ctx context.Context, client kubernetes.Interface) error {
	services := client.CoreV1().Services(namespace)
	want := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName, Namespace: namespace},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}

	_, err := services.Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		old, getErr := services.Get(ctx, serviceName, metav1.GetOptions{})
		if getErr == nil && old.Spec.Type == want.Spec.Type && old.Spec.ExternalName == want.Spec.ExternalName {
			return nil
		}

		return fmt.Errorf("service %s/%s exists with another type: want ExternalName localhost", namespace, serviceName)
	}

	if err != nil {
		return fmt.Errorf("creating service %s/%s: %w", namespace, serviceName, err)
	}

	return nil
}

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
		TypeMeta:         metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"},
		Name:             Group,
		Versions:         []metav1.GroupVersionForDiscovery{v},
		PreferredVersion: v,
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
			Resource:     name,
			Scope:        scope,
			Verbs:        []string{"get", "list"},
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

// definitionPrefix is the prefix of this API's schema names in every Kubernetes cluster.
const definitionPrefix = "io.k8s.metrics.pkg.apis.metrics.v1beta1."

// field is one property of a schema.
type field struct{ name, kind, text string }

// serveOpenAPI serves the API's description for `kubectl explain` and for validating clients. The aggregator converts
// it to version 3.
func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	definitions := map[string]any{}
	usage := field{"usage", "quantities", "CPU in cores and working set of memory, averaged over the window."}
	sample := []field{
		{"metadata", "object", "Name, namespace and labels of what was measured."},
		{"timestamp", "time", "End of the window."},
		{"window", "string", "Length of the window that the usage stands for."},
	}

	// Lists and objects refer to each other by definition.
	define := func(name, text string, fields ...field) {
		definitions[definitionPrefix+name] = schema(name, text, fields)
	}
	define("ContainerMetrics", "Usage of one container.", field{"name", "string", "The container's name in the pod's spec."}, usage)
	define("NodeMetrics", "Resource usage of a node.", append(sample, usage)...)
	define("PodMetrics", "Resource usage of a pod's containers.", append(sample, field{"containers", "[]ContainerMetrics", "One entry for each container."})...)
	define("NodeMetricsList", "A list of NodeMetrics.", field{"items", "[]NodeMetrics", "The nodes."})
	define("PodMetricsList", "A list of PodMetrics.", field{"items", "[]PodMetrics", "The pods."})

	reply(w, map[string]any{
		"swagger": "2.0", "info": map[string]any{"title": Group, "version": Version}, "definitions": definitions,
		"paths": map[string]any{
			versionPath + "/nodes": operation("list", "NodeMetrics"), versionPath + "/nodes/{name}": operation("get", "NodeMetrics", "name"),
			versionPath + "/pods":                               operation("list", "PodMetrics"),
			versionPath + "/namespaces/{namespace}/pods":        operation("list", "PodMetrics", "namespace"),
			versionPath + "/namespaces/{namespace}/pods/{name}": operation("get", "PodMetrics", "namespace", "name"),
		},
	})
}

// schema returns the schema of an object; kinds of requests get their group, version and kind.
func schema(name, text string, fields []field) map[string]any {
	properties := map[string]any{}
	for _, f := range fields {
		property := map[string]any{"type": f.kind}
		if item, list := strings.CutPrefix(f.kind, "[]"); list {
			property = map[string]any{"type": "array", "items": map[string]any{"$ref": "#/definitions/" + definitionPrefix + item}}
		}

		switch f.kind {
		case "time":
			property = map[string]any{"type": "string", "format": "date-time"}
		case "quantities":
			property = map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}}
		}

		property["description"] = f.text
		properties[f.name] = property
	}

	s := map[string]any{"type": "object", "description": text, "properties": properties}

	// A container is no object of the API.
	if name != "ContainerMetrics" {
		s["x-kubernetes-group-version-kind"] = []any{gvk(name)}
		for _, key := range []string{"apiVersion", "kind"} {
			properties[key] = map[string]any{"type": "string"}
		}
	}

	return s
}

func gvk(kind string) map[string]any {
	return map[string]any{"group": Group, "version": Version, "kind": kind}
}

// operation returns the GET operation of a path with its parameters.
func operation(action, kind string, parameters ...string) map[string]any {
	result := kind
	list := []any{}

	if action == "list" {
		result += "List"
	}

	for _, p := range parameters {
		list = append(list, map[string]any{"name": p, "in": "path", "type": "string", "required": true, "uniqueItems": true})
	}

	return map[string]any{"parameters": list, "get": map[string]any{
		"description": action + " " + kind, "operationId": action + kind + strings.Join(parameters, ""), "produces": []string{"application/json"},
		"schemes": []string{"https"}, "x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk(kind),
		"responses": map[string]any{"200": map[string]any{
			"description": "OK",
			"schema":      map[string]any{"$ref": "#/definitions/" + definitionPrefix + result},
		}},
	}}
}
