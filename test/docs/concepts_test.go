// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	policyv1alpha1 "crane.io/crane/api/policy/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/craned/qosinitializer"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
)

// concepts are the pages of docs/concepts, one for each thing that a user meets.
var concepts = []string{
	"adoption.md", "cost.md", "effective-hpa.md", "effective-vpa.md", "elastic-resources.md", "exclusive-cpus.md",
	"node-load.md", "pause-and-opt-out.md", "policy.md", "prediction.md", "qos-rules.md", "recommendation.md",
}

// conceptHeadings are the sections of a concept, in order.
var conceptHeadings = []string{"When to use it", "When not to use it", "Smallest manifest", "What can go wrong", "Read on"}

// TestConcepts checks that each concept is defined in two sentences, shown in a diagram, and has the sections of a concept.
func TestConcepts(t *testing.T) {
	var found []string
	for _, page := range markdownFiles(t) {
		if path.Dir(page) != "docs/concepts" {
			continue
		}

		found = append(found, path.Base(page))
		for _, problem := range checkConcept(readPage(t, page)) {
			t.Errorf("checkConcept(%s): %s, want the form of a concept", page, problem)
		}
	}

	slices.Sort(found)
	if !slices.Equal(found, concepts) {
		t.Errorf("pages of docs/concepts = %v, want %v", found, concepts)
	}
}

// checkConcept returns what a page lacks of a concept.
func checkConcept(content string) []string {
	var problems []string
	definition, _, _ := strings.Cut(strings.TrimSpace(afterTitle(content)), "\n\n")
	sentences := len(regexp.MustCompile(`[.!?](\s|$)`).FindAllString(definition, -1))
	if sentences != 2 {
		problems = append(problems, fmt.Sprintf("the definition has %d sentences, want 2: %s", sentences, definition))
	}

	if !strings.Contains(content, "\n```mermaid\n") {
		problems = append(problems, "there is no diagram, want a block of mermaid")
	}

	if len(yamlBlocks(content)) == 0 {
		problems = append(problems, "there is no manifest, want a block of yaml")
	}

	var headings []string
	for _, line := range proseLines(content) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			headings = append(headings, heading)
		}
	}
	if !slices.Equal(headings, conceptHeadings) {
		problems = append(problems, fmt.Sprintf("headings = %q, want %q", headings, conceptHeadings))
	}

	return problems
}

func afterTitle(content string) string {
	_, rest, _ := strings.Cut(content, "\n")
	return rest
}

// yamlBlocks returns the contents of the yaml blocks of a page.
func yamlBlocks(content string) []string {
	var found []string
	for _, match := range regexp.MustCompile("(?ms)^ *```yaml\n(.*?)^ *```$").FindAllStringSubmatch(content, -1) {
		found = append(found, match[1])
	}

	return found
}

// TestCheckConcept plants pages that lack something.
func TestCheckConcept(t *testing.T) {
	const good = "# A\n\nAn A is a thing. It does this.\n\n```mermaid\nflowchart LR\n```\n\n## When to use it\n\n## When not to use it\n\n" +
		"## Smallest manifest\n\n```yaml\na: b\n```\n\n## What can go wrong\n\n## Read on\n"
	for name, c := range map[string]struct{ content, want string }{
		"complete":             {good, ""},
		"one sentence":         {strings.Replace(good, " It does this.", "", 1), "the definition has 1 sentences"},
		"three sentences":      {strings.Replace(good, "this.", "this. And that.", 1), "the definition has 3 sentences"},
		"no diagram":           {strings.Replace(good, "mermaid", "text", 1), "there is no diagram"},
		"no manifest":          {strings.Replace(good, "yaml", "json", 1), "there is no manifest"},
		"no section":           {strings.Replace(good, "## When not to use it\n\n", "", 1), "headings = "},
		"section in a block":   {strings.Replace(good, "## Read on", "```\n## Read on\n```", 1), "headings = "},
		"sections in disorder": {strings.Replace(strings.Replace(good, "Read on", "X", 1), "When to use it", "Read on", 1), "headings = "},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(checkConcept(c.content), "; ")
			if (c.want == "") != (got == "") || !strings.HasPrefix(got, c.want) {
				t.Errorf("checkConcept() = %q, want %q", got, c.want)
			}
		})
	}
}

// TestManifests decodes the manifests of all pages strictly: objects of Crane and of Kubernetes, file formats, price books and sizing policies. A real API server
// checks those of Crane's kinds in test/integration/api.
func TestManifests(t *testing.T) {
	decoded := map[string]int{}
	for _, page := range markdownFiles(t) {
		if !strings.HasPrefix(page, "docs/") {
			continue
		}

		for _, block := range yamlBlocks(readPage(t, page)) {
			for document := range strings.SplitSeq("\n"+block, "\n---\n") {
				kind, err := decodeManifest(document)
				if err != nil {
					t.Errorf("%s: decoding a manifest: %v\n%s", page, err, document)
				}
				if kind != "" && path.Dir(page) == "docs/concepts" {
					decoded[path.Base(page)]++
				}
			}
		}
	}

	for _, page := range concepts {
		if decoded[page] == 0 {
			t.Errorf("docs/concepts/%s has no complete manifest, want at least one", page)
		}
	}
}

// otherKinds are kinds in manifests of the docs that belong to neither Crane nor Kubernetes, by the programs that read them.
var otherKinds = []string{"kustomize.config.k8s.io/", "argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/"}

var manifestField = regexp.MustCompile(`(?m)^(apiVersion|kind|currency|base): *(\S+)`)

// fileFormats decode manifests that are files and not objects, by their kind. Those of a sizing policy and a price book are named by a field of theirs.
var fileFormats = map[string]func(content []byte) error{
	"DynamicSchedulerPolicy":      discard(policyv1alpha1.DecodeDynamicSchedulerPolicy),
	"RecommendationConfiguration": discard(policyv1alpha1.DecodeRecommendationConfiguration),
	qosinitializer.Kind:           discard(qosinitializer.Parse),
	"currency":                    discard(asJSON(cost.ParsePriceBook)),
	"base":                        discard(asJSON(rightsize.ParsePolicySet)),
}

// discard returns the function without its result.
func discard[T any](decode func([]byte) (T, error)) func([]byte) error {
	return func(content []byte) error {
		_, err := decode(content)
		return err
	}
}

// asJSON returns the function of JSON as one of YAML.
func asJSON[T any](decode func([]byte) (T, error)) func([]byte) (T, error) {
	return func(content []byte) (T, error) {
		converted, err := yaml.YAMLToJSONStrict(content)
		if err != nil {
			var none T
			return none, err
		}

		return decode(converted)
	}
}

// decodeManifest returns the kind of a complete manifest, and nothing for a part of one and for kinds that Crane does not read.
func decodeManifest(document string) (string, error) {
	fields := map[string]string{}
	for _, match := range manifestField.FindAllStringSubmatch(document, -1) {
		fields[match[1]] = match[2]
	}

	for _, name := range []string{fields["kind"], "currency", "base"} {
		decode, ok := fileFormats[name]
		if ok && (name == fields["kind"] || fields[name] != "") {
			return name, decode([]byte(document))
		}
	}

	kind := fields["kind"]
	version := fields["apiVersion"]
	isOther := slices.ContainsFunc(otherKinds, func(prefix string) bool { return strings.HasPrefix(version, prefix) })
	if kind == "" || version == "" || isOther {
		return "", nil
	}

	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme),
		ensurancev1alpha1.AddToScheme(scheme), predictionv1alpha1.AddToScheme(scheme), topologyv1alpha1.AddToScheme(scheme))
	if err != nil {
		return kind, err
	}

	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	_, _, err = decoder.Decode([]byte(document), nil, nil)

	return kind, err
}

// TestDecodeManifestFails plants manifests with mistakes.
func TestDecodeManifestFails(t *testing.T) {
	for name, c := range map[string]struct{ document, wantKind, want string }{
		"part":            {"recommenders:\n- name: Resource\n", "", ""},
		"foreign kind":    {"apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec: {a: b}\n", "", ""},
		"misspelled":      {"apiVersion: analysis.crane.io/v1alpha1\nkind: RecommendationRule\nspec: {runIntervall: 24h}\n", "RecommendationRule", "unknown field"},
		"unknown kind":    {"apiVersion: analysis.crane.io/v1alpha1\nkind: Rule\n", "Rule", "no kind"},
		"unknown group":   {"apiVersion: crane.example/v1\nkind: Pod\n", "Pod", "no kind"},
		"wrong type":      {"apiVersion: v1\nkind: ConfigMap\ndata: {paused: true}\n", "ConfigMap", "cannot unmarshal"},
		"policy":          {"apiVersion: scheduler.policy.crane.io/v1alpha1\nkind: DynamicSchedulerPolicy\nspec: {a: b}\n", "DynamicSchedulerPolicy", "unknown field"},
		"price book":      {"currency: EUR\ndefault: {prices: {cpu: 0}}\n", "currency", "above zero"},
		"sizing policy":   {"name: a\nbase: default\ncpu: {flor: 1}\n", "base", "floor"},
		"complete object": {"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n", "Namespace", ""},
	} {
		t.Run(name, func(t *testing.T) {
			kind, err := decodeManifest(c.document)
			if kind != c.wantKind || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("decodeManifest() = %q, %v; want %q and an error with %q", kind, err, c.wantKind, c.want)
			}
		})
	}
}
