// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"net/http"
	"strings"
)

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
	result, list := kind, []any{}
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
