// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// contract is what gocrane's clients and users know of a kind beside its fields.
type contract struct {
	kind, plural, singular, short, scope string
	columns                              []string
	subresources                         []string
}

func contracts() []contract {
	status := []string{"status"}
	return []contract{
		{"Recommendation", "recommendations", "recommendation", "recommend", "Namespaced", []string{
			"Target=.spec.targetRef.name", "Change=.status.change", "Saving/Month=.status.savings.monthly", "Currency=.status.savings.currency", readyColumn, "AGE=.metadata.creationTimestamp",
		}, status},
		{
			"RecommendationRule", "recommendationrules", "recommendationrule", "rr", "Cluster",
			[]string{
				"RunInterval=.spec.runInterval", readyColumn, reasonColumn, "Targets=.status.targets", "LastRun=.status.lastUpdateTime", "AGE=.metadata.creationTimestamp",
			},
			status,
		},
		{"Analytics", "analytics", "analytics", "analytics", "Namespaced", []string{
			"Type=.spec.type", "Strategy=.spec.completionStrategy.completionStrategyType", "PeriodSeconds=.spec.completionStrategy.periodSeconds",
		}, status},
		{"ConfigSet", "configsets", "configset", "cs", "Namespaced", nil, nil},
		{"EffectiveHorizontalPodAutoscaler", "effectivehorizontalpodautoscalers", "effectivehorizontalpodautoscaler", "ehpa", "Namespaced", []string{
			"Target=.spec.scaleTargetRef.name", "STRATEGY=.spec.scaleStrategy", "MINPODS=.spec.minReplicas", "MAXPODS=.spec.maxReplicas",
			"REPLICAS=.status.expectReplicas", readyColumn, reasonColumn, "AGE=.metadata.creationTimestamp",
		}, status},
		{
			"Substitute", "substitutes", "substitute", "subs", "Namespaced",
			[]string{"REPLICAS=.status.replicas", "AGE=.metadata.creationTimestamp"},
			[]string{"scale", "status"},
		},
		{
			"EffectiveVerticalPodAutoscaler", "effectiveverticalpodautoscalers", "effectiveverticalpodautoscaler", "evpa", "Namespaced",
			[]string{
				"Target=.spec.targetRef.name", "Mode=.spec.updatePolicy.updateMode",
				"Change=.status.change", readyColumn, `Reason=.status.conditions[?(@.type=="Applied")].reason`, "AGE=.metadata.creationTimestamp",
			},
			status,
		},
		{"TimeSeriesPrediction", "timeseriespredictions", "timeseriesprediction", "tsp", "Namespaced", []string{
			"Target=.spec.targetRef.name", readyColumn, reasonColumn, "Skill=.status.predictionMetrics[0].skill",
			`STALE=.status.conditions[?(@.type=="Stale")].status`, "AGE=.metadata.creationTimestamp",
		}, status},
		{"ClusterNodePrediction", "clusternodepredictions", "clusternodeprediction", "cnp", "Namespaced", []string{
			"Nodes=.status.desiredNumberCreated", "Created=.status.currentNumberCreated", readyColumn, reasonColumn, "AGE=.metadata.creationTimestamp",
		}, status},
		{"NodeQOS", "nodeqoss", "nodeqos", "nq", "Cluster", []string{
			"Rule=.spec.rules[0].name", "Metric=.spec.rules[0].metricRule.name", "Threshold=.spec.rules[0].metricRule.value", "Action=.spec.rules[0].actionName",
			"AGE=.metadata.creationTimestamp",
		}, status},
		{"PodQOS", "podqoss", "podqos", "pq", "Cluster", []string{
			"Action=.spec.allowedActions[0]", "CPUPriority=.spec.resourceQOS.cpuQOS.cpuPriority", "AGE=.metadata.creationTimestamp",
		}, status},
		{"AvoidanceAction", "avoidanceactions", "avoidanceaction", "avoid", "Cluster", nil, status},
		{"NodeResourceTopology", "noderesourcetopologies", "noderesourcetopology", "nrt", "Cluster", []string{
			"CRANE CPU MANAGER POLICY=.craneManagerPolicy.cpuManagerPolicy",
			"CRANE TOPOLOGY MANAGER POLICY=.craneManagerPolicy.topologyManagerPolicy", "AGE=.metadata.creationTimestamp",
		}, nil},
	}
}

// TestNamesColumnsAndSubresources compares what the server established with what gocrane's users know; columns are those of kubectl get.
func TestNamesColumnsAndSubresources(t *testing.T) {
	list, err := client.Resource(crdResource).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	found := map[string]contract{}
	for _, crd := range list.Items {
		found[stringAt(crd.Object, "spec", "names", "kind")] = contractOf(&crd)
	}

	for _, want := range contracts() {
		if diff := cmp.Diff(want, found[want.kind], cmp.AllowUnexported(contract{})); diff != "" {
			t.Errorf("%s (-want +found):\n%s", want.kind, diff)
		}
		delete(found, want.kind)
	}

	for kind := range found {
		t.Errorf("the kind %s is not in the table, want its row", kind)
	}
}

// Columns of several kinds.
const (
	readyColumn  = `Ready=.status.conditions[?(@.type=="Ready")].status`
	reasonColumn = `Reason=.status.conditions[?(@.type=="Ready")].reason`
)

// contractOf reads accepted names from status: what conflicts with another definition is not accepted.
func contractOf(crd *unstructured.Unstructured) contract {
	version := versionOf(crd)
	short, _, _ := unstructured.NestedStringSlice(crd.Object, "status", "acceptedNames", "shortNames")
	result := contract{
		kind:     stringAt(crd.Object, "status", "acceptedNames", "kind"),
		plural:   stringAt(crd.Object, "status", "acceptedNames", "plural"),
		singular: stringAt(crd.Object, "status", "acceptedNames", "singular"),
		short:    strings.Join(short, ","),
		scope:    stringAt(crd.Object, "spec", "scope"),
	}

	columns, _, _ := unstructured.NestedSlice(version, "additionalPrinterColumns")
	for _, column := range columns {
		fields := column.(map[string]any)
		// The server shows the age itself where a definition has no columns.
		if len(columns) == 1 && fields["name"] == "Age" {
			continue
		}

		if priority, _ := fields["priority"].(int64); priority > 0 {
			continue // shown with -o wide alone, as are the columns of gocrane that are the same for all objects
		}

		result.columns = append(result.columns, fmt.Sprintf("%s=%s", fields["name"], fields["jsonPath"]))
	}

	subresources, _, _ := unstructured.NestedMap(version, "subresources")
	for name := range subresources {
		result.subresources = append(result.subresources, name)
	}

	slices.Sort(result.subresources)
	return result
}

func stringAt(object map[string]any, path ...string) string {
	value, _, _ := unstructured.NestedString(object, path...)
	return value
}

// TestKindsWithoutStatusHaveNoSubresource wants 404 where there is nothing to write.
func TestKindsWithoutStatusHaveNoSubresource(t *testing.T) {
	for _, object := range fixtures(t) {
		if kinds()[object.GroupVersionKind()].status {
			continue
		}

		if _, err := apply(t.Context(), object, "status"); !apierrors.IsNotFound(err) {
			t.Errorf("%s/status: want 404, got %v", object.GetKind(), err)
		}
	}
}

// TestDefinitionsInstallWithoutWarning applies the definitions once more and expects no warning of the server.
func TestDefinitionsInstallWithoutWarning(t *testing.T) {
	heard := &warnings{}
	configuration := plane.Config()

	configuration.WarningHandler = heard
	listening, err := dynamic.NewForConfig(configuration)
	if err != nil {
		t.Fatal(err)
	}

	crds, err := definitions()
	if err != nil {
		t.Fatal(err)
	}

	for _, crd := range crds {
		// Client-side apply keeps the object in an annotation, of which all together may have 262144 bytes.
		data, err := json.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}

		if len(data) > 262144 {
			t.Errorf("%s has %d bytes, want at most 262144 for client-side apply", crd.GetName(), len(data))
		}

		options := metav1.ApplyOptions{FieldManager: "install"}
		if _, err := listening.Resource(crdResource).Apply(t.Context(), crd.GetName(), crd, options); err != nil {
			t.Error(err)
		}
	}

	if len(heard.texts) > 0 {
		t.Errorf("warnings: %q, want none", heard.texts)
	}
}

type warnings struct{ texts []string }

var _ rest.WarningHandler = &warnings{}

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }
