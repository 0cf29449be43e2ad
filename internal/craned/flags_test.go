// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"crane.io/crane/internal/component/deprecatedflags"
	"crane.io/crane/internal/component/featuregate"
)

// gocraneFlags are the flags of gocrane's craned with their defaults, as its manifests use them.
const gocraneFlags = `
api-qps 300 | api-burst 400 | metrics-bind-address :8080 | health-probe-bind-address :8081 | leader-elect true
lease-duration 15s | lease-retry-period 2s | lease-renew-period 10s | prediction-update-frequency-duration 30s
datasource prom | prometheus-address | prometheus-adapter-configmap-namespace | prometheus-adapter-configmap-name
prometheus-adapter-configmap-key | prometheus-adapter-config | prometheus-adapter-extension-labels | extension-labels
prometheus-auth-username | prometheus-auth-password | prometheus-auth-bearertoken | prometheus-query-concurrency 10
prometheus-insecure-skip-verify false | prometheus-keepalive 60s | prometheus-timeout 3m | prometheus-bratelimit false
prometheus-maxpoints 11000 | seed-file | grpc-ds-address localhost:50051 | grpc-ds-timeout 1m | model-update-interval 12h
webhook-enabled true | recommendation-config-file
recommendation-configuration-file /tmp/recommendation-framework/recommendation_configuration.yaml | qos-config-file
ehpa-propagation-label-prefixes | ehpa-propagation-annotation-prefixes | ehpa-propagation-labels | ehpa-propagation-annotations
oom-record-max-number 10000 | time-series-prediction-max-concurrent-reconciles 10 | cache-unstructured true
recommendation-monitor-interval 1h | recommendation-outdate-interval 24h | server-bind-address 0.0.0.0
server-bind-port 8082 | server-enable-profiling false | server-enable-metrics false | server-mode release
server-enable-grafana false | server-grafana-config | server-store secret | kubeconfig | feature-gates Analysis=true
add_dir_header false | alsologtostderr false | log_backtrace_at :0 | log_dir | log_file | log_file_max_size 1800
logtostderr true | one_output false | skip_headers false | skip_log_headers false | stderrthreshold 2 | v 0 | vmodule
`

// flagsOfGocrane parses gocraneFlags.
func flagsOfGocrane() map[string]string {
	out := map[string]string{}
	for _, word := range strings.FieldsFunc(gocraneFlags, func(r rune) bool { return r == '|' || r == '\n' }) {
		if name, value, _ := strings.Cut(strings.TrimSpace(word), " "); name != "" {
			out[name] = value
		}
	}

	return out
}

// TestFlags_AllOfGocrane checks that each flag is accepted with gocrane's default as its value, and that exactly those without an
// effect cause a warning.
func TestFlags_AllOfGocrane(t *testing.T) {
	if n := len(flagsOfGocrane()); n < 60 {
		t.Fatalf("the list has %d flags, want 60 or more", n)
	}

	var gone []string
	for _, r := range deprecatedFlags() {
		gone = append(gone, r.Name)
	}

	for name, value := range flagsOfGocrane() {
		t.Run(name, func(t *testing.T) {
			_, warnings, err := parse(t, address, "--"+name+"="+value)
			if err != nil {
				t.Fatal(err)
			}

			fs := pflag.NewFlagSet("craned", pflag.ContinueOnError)
			NewOptions().AddFlags(fs)

			dashed := strings.ReplaceAll(name, "_", "-")
			_, hasNone := fs.Lookup(dashed).Annotations[deprecatedflags.Annotation]
			if hasNone != slices.Contains(gone, dashed) {
				t.Errorf("the flag is retired: %t, want that of the table of retired flags", hasNone)
			}
			if hasNone != (len(warnings) == 1) || hasNone && !strings.HasPrefix(warnings[0], "--"+dashed+" has no effect: ") {
				t.Errorf("warnings %v, want one if the flag is retired: %t", warnings, hasNone)
			}
		})
	}

	// Booleans need no value, and a flag without an effect does no harm.
	_, warnings, err := parse(t, address, "--server-enable-grafana", "--cache-unstructured", "--logtostderr", "--alsologtostderr=false")
	if err != nil || len(warnings) != 4 {
		t.Errorf("parsing four flags without an effect: warnings %v, %v, want 4", warnings, err)
	}
}

// TestDeprecatedFlags_OnlyOfGocrane checks that the table has only flags of gocrane.
func TestDeprecatedFlags_OnlyOfGocrane(t *testing.T) {
	known := map[string]string{}
	for name, value := range flagsOfGocrane() {
		known[strings.ReplaceAll(name, "_", "-")] = value
	}

	for _, r := range deprecatedFlags() {
		if value, ok := known[r.Name]; !ok || value != r.Default || r.Replacement == "" {
			t.Errorf("--%s has the default %q here, want gocrane's, %q (known: %t), and a replacement", r.Name, r.Default, value, ok)
		}
	}
}

// applyConfig parses a command line with a configuration file of the given text.
func applyConfig(t *testing.T, text string, args ...string) (*Options, error) {
	t.Helper()

	name := filepath.Join(t.TempDir(), "craned.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	o := NewOptions()
	fs := pflag.NewFlagSet("craned", pflag.ContinueOnError)
	o.AddFlags(fs)

	if err := fs.Parse(append(args, "--config="+name)); err != nil {
		t.Fatal(err)
	}

	if err := o.ApplyFile(fs); err != nil {
		return nil, err
	}

	o.Complete(fs)
	return o, o.Validate().ToAggregate()
}

// TestApplyFile checks that a file sets flags and that the command line takes precedence.
func TestApplyFile(t *testing.T) {
	o, err := applyConfig(t, `
# Comments and anchors are YAML's.
prometheus-address: http://prometheus:9090
api-qps: 12.5
prometheus-timeout: 90s
leader-elect: false
controllers: ["*", -cost]
feature-gates: {ClusterNodePrediction: true, Analysis: false}
recommendation-configuration-file: /etc/crane/recommendation.yaml
v: 2
`, "--controllers=nodeload", "--api-burst=7")
	if err != nil {
		t.Fatal(err)
	}

	if o.Prometheus.Address != "http://prometheus:9090" || o.APIQPS != 12.5 || o.APIBurst != 7 || o.Prometheus.Timeout.String() != "1m30s" ||
		o.LeaderElection.Enabled || o.Log.Verbosity != 2 || !o.requireConfiguration ||
		!o.FeatureGates.Enabled(featuregate.ClusterNodePrediction) || o.FeatureGates.Enabled(featuregate.Analysis) {
		t.Errorf("options %+v, want the values of the file", o)
	}

	if !slices.Equal(o.Controllers, []string{"nodeload"}) {
		t.Errorf("controllers %v, want nodeload: the command line takes precedence", o.Controllers)
	}
	if o, err = applyConfig(t, "controllers: [\"*\", -cost]\n", address); err != nil || !slices.Equal(o.Controllers, []string{"*", "-cost"}) {
		t.Errorf("applying a file with a list of controllers: %+v, %v, want * and -cost", o, err)
	}

	for _, empty := range []string{"", "{}", "---\n", "# nothing\n"} {
		if _, err := applyConfig(t, empty, address); err != nil {
			t.Errorf("applying the file %q: %v, want no error", empty, err)
		}
	}
}

func TestApplyFile_Invalid(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown field":      {"prometheus-addr: x\n", "prometheus-addr: Invalid value"},
		"twice":              {"v: 1\nv: 2\n", `key "v" already set`},
		"not YAML":           {"v: [1\n", "yaml"},
		"a list":             {"- v\n", "want a map"},
		"wrong type":         {"api-burst: many\n", `api-burst: Invalid value: "many"`},
		"no duration":        {"prometheus-timeout: 90\n", `prometheus-timeout: Invalid value: "90"`},
		"null":               {"v: null\n", "v: Invalid value"},
		"list for one":       {"v: [1, 2]\n", "v: Invalid value"},
		"map for one":        {"v: {level: 2}\n", "v: Invalid value"},
		"map in a list":      {"controllers: [\"*\", {a: b}]\n", "controllers[1]: Invalid value"},
		"gate without value": {"feature-gates: {Analysis: maybe}\n", "feature-gates[Analysis]: Invalid value"},
		"unknown gate":       {"feature-gates: {Nonsense: true}\n", "feature-gates: Invalid value"},
		"another file":       {"config: other.yaml\n", "config: Forbidden"},
		"underscores":        {"api_qps: 3\n", "api_qps: Invalid value"},
		"what flags refuse":  {"controllers: [nonsense]\n", "--controllers[0]: Unsupported value"},
		"too long":           {"# " + strings.Repeat("x", maxConfigBytes), "bytes, more than"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := applyConfig(t, c.text, address); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}

	o := NewOptions()
	o.ConfigFile = filepath.Join(t.TempDir(), "none.yaml")
	if err := o.ApplyFile(pflag.NewFlagSet("", pflag.ContinueOnError)); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("ApplyFile without the file: %v, want an error that names none.yaml", err)
	}
}

// FuzzConfigFile checks that no text makes ApplyFile panic, and that an accepted text is accepted again.
func FuzzConfigFile(f *testing.F) {
	f.Add("v: 1\ncontrollers: ['*']\nfeature-gates: {Analysis: true}\n")
	f.Add("a: &a [*a]\n")
	f.Add("? {}\n: {}\n")

	f.Fuzz(func(t *testing.T, text string) {
		name := filepath.Join(t.TempDir(), "craned.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		var first error
		for i := range 2 {
			o := NewOptions()
			fs := pflag.NewFlagSet("craned", pflag.ContinueOnError)
			o.AddFlags(fs)

			o.ConfigFile = name
			if err := o.ApplyFile(fs); i == 0 {
				first = err
			} else if (err == nil) != (first == nil) {
				t.Errorf("ApplyFile: %v, then %v, want the same result for the same file", first, err)
			}
		}
	})
}

// TestFlags_Documented checks that the documentation has each flag without an effect, and each gate with its stage and default.
func TestFlags_Documented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/craned.md")
	if err != nil {
		t.Fatal(err)
	}

	page := string(text)
	for _, r := range deprecatedFlags() {
		if !strings.Contains(r.Replacement, "logs are lines") && !strings.Contains(page, "`--"+r.Name+"`") {
			t.Errorf("docs/reference/craned.md lacks --%s, want each retired flag", r.Name)
		}
	}

	for name, spec := range featuregate.Specs() {
		if !slices.ContainsFunc(strings.Split(page, "\n"), func(line string) bool {
			cells := strings.Split(line, "|")
			return len(cells) > 3 && strings.Contains(cells[1], "`"+string(name)+"`") &&
				strings.TrimSpace(cells[2]) == strings.ToLower(string(spec.PreRelease)) &&
				strings.TrimSpace(cells[3]) == map[bool]string{true: "on", false: "off"}[spec.Default]
		}) {
			t.Errorf("docs/reference/craned.md lacks gate %s, want its stage %s and its default %t", name, spec.PreRelease, spec.Default)
		}
	}

	for _, source := range dataSourceNames() {
		if !strings.Contains(page, "| `"+source+"`") {
			t.Errorf("docs/reference/craned.md lacks the data source %s, want each", source)
		}
	}
}
