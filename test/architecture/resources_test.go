// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// resourceReaders are the files that read the field Resources of an object of the API, with the reason why they may. All others use
// package workload or package effectiveresources, because a pod template does not say what its pods request.
func resourceReaders() map[string]string {
	const (
		ofPod  = "reads pods, which have what they request"
		noPod  = "reads resources of another kind"
		writes = "writes the resources, or reads its own values"
	)

	return map[string]string{
		"internal/kube/effectiveresources/effectiveresources.go":        "computes what pods of a template request",
		"internal/kube/effectiveresources/observed.go":                  "computes what pods of a template request",
		"internal/kube/workload/observed.go":                            "copies pods for effectiveresources",
		"internal/kube/workload/template.go":                            "reads the result of effectiveresources, and what a patch has to add to a template",
		"internal/adoption/targetsnapshot/convert_pod.go":               "reads pods, and for TemplateSize a template to find changes of its owner",
		"internal/adoption/targetsnapshot/room.go":                      "reads the result of effectiveresources",
		"internal/adoption/targetsnapshot/desired_size.go":              "reads a recommendation",
		"internal/adoption/webhook/mutator.go":                          "reads a pod at its creation, which has its defaults, and writes it",
		"internal/autoscaling/controller/evpa/apply.go":                 writes,
		"internal/autoscaling/hpametrics/request.go":                    ofPod,
		"internal/agent/cpupinning/pods.go":                             ofPod,
		"internal/agent/elasticrequest/elasticrequest.go":               ofPod,
		"internal/agent/effectiverequest/effectiverequest.go":           ofPod,
		"internal/agent/podresource/manager.go":                         ofPod,
		"internal/kube/podlimits/quotas.go":                             "reads a pod with its defaults, as the API server admits it",
		"internal/kube/podlimits/ranges.go":                             "computes what a LimitRange refuses of a pod with its defaults",
		"internal/adoption/targetsnapshot/pod_limits.go":                writes,
		"internal/metrics/discover/proof.go":                            "reads the resources of a rule of RBAC",
		"internal/recommendation/requestpatch/limits.go":                writes,
		"internal/agent/podresource/plan.go":                            ofPod,
		"internal/agent/predecessor.go":                                 ofPod,
		"internal/agent/recording/recorder.go":                          ofPod,
		"internal/agent/act/predecessor.go":                             noPod,
		"internal/agent/topology/manager.go":                            noPod,
		"internal/agent/topology/object.go":                             noPod,
		"internal/craned/admission/validation/topology.go":              noPod,
		"internal/dashboard/backend/node_details.go":                    noPod,
		"internal/kube/podqos/match.go":                                 ofPod,
		"internal/kube/topologyconv/zones.go":                           noPod,
		"internal/recommendation/controller/oomrecord/detect.go":        ofPod,
		"internal/recommendation/controller/run_objects.go":             ofPod,
		"internal/recommendation/controller/savingsrecorder/adopted.go": ofPod,
		"internal/scheduler/dynamic/pod.go":                             ofPod,
		"internal/scheduler/noderesourcetopology/request.go":            ofPod,
		"internal/migrate/away_findings.go":                             "compares pods with a template, where the template says what they request",
		"internal/migrate/away_operations.go":                           writes,
		"internal/migrate/inventory.go":                                 ofPod,
	}
}

// unstructuredResources matches a path to the requests or limits of a container in an unstructured object.
var unstructuredResources = regexp.MustCompile(`"resources",\s*"(requests|limits)"`)

// TestResourceReaders checks that no other file reads the requests and limits of containers.
func TestResourceReaders(t *testing.T) {
	allowed := resourceReaders()
	for _, name := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/") || strings.HasPrefix(name, "internal/testbed/") {
			continue // The test bed is the cluster: its kubelet and its workloads.
		}

		content, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}

		reads, err := readsResources(name, string(content))
		if err != nil {
			t.Fatal(err)
		}

		reason, listed := allowed[name]
		delete(allowed, name)
		switch {
		case reads && !listed:
			t.Errorf("%s reads the field Resources, want package workload or effectiveresources: a template does not say what pods request", name)
		case listed && reason == "":
			t.Errorf("%s has no reason, want one", name)
		case listed && !reads:
			t.Errorf("%s does not read the field Resources, want it removed from the list", name)
		}
	}

	for name := range allowed {
		t.Errorf("%s does not exist, want it removed from the list", name)
	}
}

// readsResources reports whether a file selects a field Resources beside the types of the API, or its path in an unstructured object.
func readsResources(name, content string) (bool, error) {
	if unstructuredResources.MatchString(content) {
		return true, nil
	}

	file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.SkipObjectResolution)
	if err != nil {
		return false, err
	}

	packages := map[string]bool{}
	ofAPI := false
	for _, i := range file.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		packages[filepath.Base(path)] = true
		ofAPI = ofAPI || path == "k8s.io/api/core/v1"
	}

	reads := false
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok || s.Sel.Name != "Resources" {
			return true
		}

		base, isName := s.X.(*ast.Ident)
		reads = reads || !isName || !packages[base.Name]
		return true
	})

	return reads && ofAPI, nil
}

// TestResourceReaders_Finds checks that a reader is found, and that types and other fields are not.
func TestResourceReaders_Finds(t *testing.T) {
	const head = "package p\n\nimport (\n\tcorev1 \"k8s.io/api/core/v1\"\n\t\"crane.io/crane/pkg/rightsize\"\n)\n\n"
	for code, want := range map[string]bool{
		head + "func f(c *corev1.Container) any { return c.Resources.Requests }": true,
		head + "func f(s corev1.PodSpec) { g(&s.Containers[0].Resources) }":      true,
		head + "func f(s corev1.PodSpec) any { return s.Resources }":             true,
		head + "var r rightsize.Resources":                                       false,
		head + "func f(c *corev1.Container) any { return c.Name }":               false,
		"package p\n\nvar r = nested(o, \"spec\", \"resources\", \"requests\")":  true,
		"package p\n\nfunc f(r Report) any { return r.Resources }":               false,
	} {
		if got, err := readsResources("p.go", code); err != nil || got != want {
			t.Errorf("readsResources(%q) = %t, error %v, want %t", code, got, err, want)
		}
	}
}
