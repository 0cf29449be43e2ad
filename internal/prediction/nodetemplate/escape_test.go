// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetemplate

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

// hostileTexts are what a compromised node may write into its Node to read other series.
var hostileTexts = []string{
	`.*`,
	`10.0.0.1|.*`,
	`n1"}) or sum(kube_secret_info{namespace=~".*`,
	`n1'}) or sum(kube_secret_info{namespace=~'.*`,
	"n1`}) or sum(kube_secret_info{namespace=~`.*",
	`n1)"}) or sum(kube_secret_info{namespace=~"(.*`,
	`n1\`,
	`n1\"}) or sum(kube_secret_info{namespace=~".*`,
	"n1\"}) # \n or sum(kube_secret_info) #",
	"n1\r\"}) or sum(kube_secret_info) #",
	"n1'}}\n- {resourceIdentifier: memory, type: ExpressionQuery, expressionQuery: {expression: sum(kube_secret_info)}}\n#",
	"n1\n- resourceIdentifier: memory\n  type: ExpressionQuery\n  expressionQuery: {expression: sum(kube_secret_info)}\n",
	`n1", "expression": "sum(kube_secret_info)`,
	placeholderStart + "227d29206f722073756d286b7562655f7365637265745f696e666f7b783d22" + placeholderEnd, // "}) or sum(kube_secret_info{x="
	placeholderStart, placeholderEnd + "22", "\\Q.*\\E", "(?i)n1", "", "{{.metadata.name}}", "$1", "<>&\u2028", "\x7f", "é",
}

// hostileTemplates print a text of the Node, {{TEXT}}, in each kind of string of PromQL and of YAML.
var hostileTemplates = map[string]string{
	"equal":            `sum(load{instance="{{TEXT}}"})`,
	"not equal":        `sum(load{instance!="{{TEXT}}"})`,
	"single quotes":    `sum(load{instance='{{TEXT}}'})`,
	"backquotes":       "sum(load{instance=`{{TEXT}}`})",
	"pattern":          `sum(load{instance=~"{{TEXT}}"})`,
	"not pattern":      `sum(load{instance!~ '{{TEXT}}'})`,
	"pattern raw":      "sum(load{instance=~`({{TEXT}})`})",
	"group":            `sum(load{mode!~"idle|iowait",instance=~"(n1{{range .status.addresses}}|{{.address}}{{end}})(:\\d+)?"})`,
	"twice":            `sum(load{instance=~"n1|{{TEXT}}", node="{{TEXT}}"})`,
	"comment":          "sum( # it's \"\nload{instance=~ # =\n\"{{TEXT}}\"})",
	"quoted":           `sum(load{instance={{printf "%q" TEXT}}})`,
	"printed":          `sum(load{instance="{{print "a" TEXT}}"})`,
	"wide":             `sum(load{instance="{{printf "%9.2s" TEXT}}"})`,
	"hexadecimal":      `sum(load{instance="{{printf "%x" TEXT}}"})`,
	"variable":         `sum(load{instance="{{$x := TEXT}}{{$x}}"})`,
	"escaped quote":    `sum(load{instance="\{{TEXT}}"})`,
	"escaped pattern":  `sum(load{instance=~"\\{{TEXT}}"})`,
	"outside":          `sum(load{instance="n1"}) + {{TEXT}}`,
	"name":             `sum(load{{"{"}}{{TEXT}}="n1"})`,
	"in a comment":     "sum(load) # {{TEXT}}\n",
	"function's label": `label_replace(sum(load), "node", "{{TEXT}}", "", "")`,
	"whole Node":       `sum(load{instance="{{.}}"})`,
	"keys":             `sum(load{instance="{{range $k, $v := .metadata.annotations}}{{$k}}{{end}}"})`,
}

func newHostileNode(text string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{"text": text, text: text}, Labels: map[string]string{"pool": "mixed"}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: text}},
			NodeInfo:  corev1.NodeSystemInfo{OSImage: text},
		},
	}
}

// hostileYAML returns the text of a spec with an expression, in each kind of scalar that can hold it as it is.
func hostileYAML(expression string) []string {
	const head = "predictionMetrics:\n- resourceIdentifier: cpu\n  type: ExpressionQuery\n  expressionQuery:\n    expression: "
	block := head + "|\n      " + strings.ReplaceAll(expression, "\n", "\n      ") + "\n"

	out := []string{block}
	if !strings.Contains(expression, "\n") {
		out = append(out, head+"'"+strings.ReplaceAll(expression, "'", "''")+"'\n")
	}

	return out
}

// checkHostile renders a template for a hostile Node and checks that the expression, if there is one, has the selectors of the template alone, and
// that each pattern matches the text itself and no other instance.
func checkHostile(t *testing.T, name, text string) {
	t.Helper()

	expression := strings.ReplaceAll(strings.ReplaceAll(hostileTemplates[name], "{{TEXT}}", "{{.metadata.annotations.text}}"), "TEXT", ".metadata.annotations.text")
	for _, template := range hostileYAML(expression) {
		spec, err := Render(template, newHostileNode(text))
		if err != nil {
			continue // There is no forecast.
		}

		if len(spec.PredictionMetrics) != 1 || spec.PredictionMetrics[0].ResourceIdentifier != "cpu" {
			t.Errorf("%s: Render for a Node with %q has metrics %+v, want cpu alone", name, text, spec.PredictionMetrics)
			continue
		}

		checkSelectors(t, name, text, spec.PredictionMetrics[0].ExpressionQuery.Expression)
	}
}

func checkSelectors(t *testing.T, name, text, expression string) {
	t.Helper()

	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		return // Prometheus refuses it.
	}

	selectors := 0
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}

		selectors++

		if selector.Name != "load" {
			t.Errorf("%s: the expression for a Node with %q selects %s, want load alone", name, text, selector)
		}

		for _, m := range selector.LabelMatchers {
			isPattern := m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp
			isOther := text != "n2" && text != "n2:9100"
			if isPattern && m.Name == "instance" && isOther && m.Matches("n2") == (m.Type == labels.MatchRegexp) {
				t.Errorf("%s: the matcher %s for a Node with %q matches n2, want the Node alone", name, m, text)
			}
			if m.Value == "" && m.Name == "instance" {
				t.Errorf("%s: the matcher %s for a Node with %q is empty, want an error", name, m, text)
			}
		}

		return nil
	})

	if selectors != 1 {
		t.Errorf("%s: the expression for a Node with %q is %s, want one selector", name, text, expression)
	}
}

// TestRender_HostileNode: with the addresses of its Node a compromised node could otherwise read every series of Prometheus, because expressions of
// nodes are bounded by no namespace.
func TestRender_HostileNode(t *testing.T) {
	for _, text := range hostileTexts {
		for name := range hostileTemplates {
			checkHostile(t, name, text)
		}
	}
}

func FuzzRender_HostileNode(f *testing.F) {
	for _, text := range hostileTexts {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		for name := range hostileTemplates {
			checkHostile(t, name, strings.ToValidUTF8(text, "?"))
		}
	})
}

// TestRender_HostileAddress renders the shipped template.
func TestRender_HostileAddress(t *testing.T) {
	content, err := os.ReadFile("../../../examples/noderesource-tsp-template.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var cm corev1.ConfigMap
	if err := yaml.Unmarshal(content, &cm); err != nil {
		t.Fatal(err)
	}

	const address = `x"}) or sum(kube_secret_info{namespace=~".*`
	spec, err := Render(cm.Data[predictionv1alpha1.NodeResourceTemplateKey], newHostileNode(address))
	if err != nil {
		t.Fatalf("Render(the example, a Node with address %s) = %v, want no error", address, err)
	}

	for _, m := range spec.PredictionMetrics {
		parsed, err := parser.NewParser(parser.Options{}).ParseExpr(m.ExpressionQuery.Expression)
		if err != nil {
			t.Fatalf("parsing the expression of %s = %v, want PromQL:\n%s", m.ResourceIdentifier, err, m.ExpressionQuery.Expression)
		}

		parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
			selector, ok := node.(*parser.VectorSelector)
			if ok && selector.Name == "kube_secret_info" {
				t.Errorf("the expression of %s selects %s, want no series beside those of the template", m.ResourceIdentifier, selector)
			}

			if ok && strings.HasPrefix(selector.Name, "node_") && !selectsInstances(selector, "n1", "n1:9100", "10.0.0.1:9100", address) {
				t.Errorf("the expression of %s selects %s, want the Node's name and addresses", m.ResourceIdentifier, selector)
			}

			return nil
		})
	}
}

func selectsInstances(selector *parser.VectorSelector, instances ...string) bool {
	for _, m := range selector.LabelMatchers {
		for _, instance := range instances {
			if m.Name == "instance" && !m.Matches(instance) {
				return false
			}
		}
	}

	return true
}

func TestRender_Escaped(t *testing.T) {
	for _, test := range []struct{ name, expression, text, want string }{
		{"equal", `load{instance="{{TEXT}}"}`, `a"\b` + "\n", `load{instance="a\"\\b\n"}`},
		{"single quotes", `load{instance='{{TEXT}}'}`, `a"'`, `load{instance='a"\''}`},
		{"backquotes", "load{instance=`{{TEXT}}`}", `a"\b`, "load{instance=`a\"\\b`}"},
		{"pattern", `load{instance=~"{{TEXT}}(:\\d+)?"}`, `10.0.0.1`, `load{instance=~"10\\.0\\.0\\.1(:\\d+)?"}`},
		{"pattern of backquotes", "load{instance=~`{{TEXT}}`}", `a.b`, "load{instance=~`a\\.b`}"},
		{"quoted", `load{instance={{printf "%q" TEXT}}}`, `a"b`, `load{instance="a\"b"}`},
		{"literals of the template", `load{instance=~"{{$x := ".*|"}}{{$x}}{{TEXT}}"}`, `a`, `load{instance=~".*|a"}`},
		{"number", `load * {{TEXT}}`, `0.5`, `load * 0.5`},
		{"whole number", `load * {{TEXT}}`, `16`, `load * 16`},
		{"comparison", `load{x="{{if eq TEXT "mixed"}}yes{{end}}"}`, `mixed`, `load{x="yes"}`},
	} {
		expression := strings.ReplaceAll(strings.ReplaceAll(test.expression, "{{TEXT}}", "{{.metadata.annotations.text}}"), "TEXT", ".metadata.annotations.text")
		spec, err := Render(hostileYAML(expression)[0], newHostileNode(test.text))
		if err != nil {
			t.Errorf("%s: Render(%s) for a Node with %q = %v, want %s", test.name, expression, test.text, err, test.want)
			continue
		}

		if got := strings.TrimSpace(spec.PredictionMetrics[0].ExpressionQuery.Expression); got != test.want {
			t.Errorf("%s: Render(%s) for a Node with %q = %s, want %s", test.name, expression, test.text, got, test.want)
		}
	}
}

func TestRender_NotEscapable(t *testing.T) {
	for _, test := range []struct{ name, expression, text, want string }{
		{"outside", `load * {{TEXT}}`, `load2`, "is outside of a string and not a number"},
		{"empty", `load{instance="{{TEXT}}"}`, ``, "is empty"},
		{"after a backslash", `load{instance="\{{TEXT}}"}`, `a`, "follows a backslash"},
		{"backquote", "load{instance=`{{TEXT}}`}", "`", "has a backquote"},
		{"cut", `load{instance="{{printf "%.2s" (print TEXT)}}"}`, "abc", "is changed or cut"},
		{"reserved", "load{instance=\"" + placeholderStart + "\"}", "abc", "reserved"},
	} {
		expression := strings.ReplaceAll(strings.ReplaceAll(test.expression, "{{TEXT}}", "{{.metadata.annotations.text}}"), "TEXT", ".metadata.annotations.text")
		_, err := Render(hostileYAML(expression)[0], newHostileNode(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Render(%s) for a Node with %q = %v, want an error with %q", test.name, expression, test.text, err, test.want)
		}
	}
}

// TestRender_HostileCondition: metric queries have their patterns in conditions, and names beside them.
func TestRender_HostileCondition(t *testing.T) {
	const template = `predictionMetrics:
- resourceIdentifier: {{.metadata.annotations.text}}
  type: MetricQuery
  metricQuery:
    metricName: load
    labels:
    - {key: node, operator: "=~", value: ["n1|{{.metadata.annotations.text}}"]}
    - {key: pool, operator: "=", value: ["{{.metadata.annotations.text}}"]}
`

	for _, text := range hostileTexts {
		spec, err := Render(template, newHostileNode(text))
		if err != nil {
			t.Errorf("Render for a Node with %q = %v, want no error", text, err)
			continue
		}

		shown := strings.NewReplacer(placeholderStart, "\uFFFD", placeholderEnd, "\uFFFD").Replace(text)
		m := spec.PredictionMetrics[0]
		conditions := m.MetricQuery.QueryConditions
		if m.ResourceIdentifier != shown || conditions[0].Value[0] != "n1|"+regexp.QuoteMeta(shown) || conditions[1].Value[0] != shown {
			t.Errorf("Render for a Node with %q = %+v with conditions %+v, want the text as it is, and quoted in the pattern", text, m, conditions)
		}
	}
}
