// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"crane.io/crane/internal/agent/elasticresource"
	"crane.io/crane/internal/component/featuregate"
	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/pkg/units"
)

// parse parses a command line and returns the warnings.
func parse(t *testing.T, args ...string) (*Options, []string, error) {
	t.Helper()

	o := NewOptions()
	fs := pflag.NewFlagSet("crane-agent", pflag.ContinueOnError)
	o.AddFlags(fs)

	if err := fs.Parse(args); err != nil {
		return nil, nil, err
	}

	return o, o.Complete(fs), o.Validate().ToAggregate()
}

// flagsOfGocrane returns all flags of gocrane's agent with their defaults.
func flagsOfGocrane() map[string]string {
	return map[string]string{
		"hostname-override": "", "runtime-endpoint": "", "cgroup-driver": "cgroupfs", "sys-path": "/sys", "kubelet-root-path": "/var/lib/kubelet",
		"enable-profiling": "false", "bind-address": "0.0.0.0:8081", "collect-interval": "10s", "ifaces": "[eth0]", "node-resource-reserved": "[]",
		"max-inactivity": "5m0s", "execute-excess": "10%", "cpu-manager-reconcile-period": "5s", "default-cpu-policy": "exclusive", "feature-gates": "",
		"add_dir_header": "false", "alsologtostderr": "false", "log_backtrace_at": ":0", "log_dir": "", "log_file": "", "log_file_max_size": "1800",
		"logtostderr": "true", "one_output": "false", "skip_headers": "false", "skip_log_headers": "false", "stderrthreshold": "2", "v": "0", "vmodule": "",
	}
}

// TestFlagsOfGocrane checks that each flag is accepted with gocrane's default, and either has an effect with the same default or names its
// replacement.
func TestFlagsOfGocrane(t *testing.T) {
	fs := pflag.NewFlagSet("crane-agent", pflag.ContinueOnError)
	NewOptions().AddFlags(fs)

	// Acting within two seconds needs an evaluation per second.
	differs := []string{"collect-interval"}
	for name, value := range flagsOfGocrane() {
		f := fs.Lookup(name)
		if f == nil {
			t.Errorf("--%s is unknown, want every flag of gocrane", name)
			continue
		}

		if f.DefValue != value && !slices.Contains(differs, name) {
			t.Errorf("--%s is %q by default, want gocrane's %q", name, f.DefValue, value)
		}
	}

	gone := deprecatedFlags()
	for _, r := range gone {
		_, warnings, err := parse(t, "--dry-run", "--"+r.Name+"="+r.Default)
		if err != nil || len(warnings) != 1 || !strings.HasPrefix(warnings[0], "--"+r.Name+" has no effect: ") || r.Replacement == "" {
			t.Errorf("--%s: warnings %v, %v; want one that it has no effect", r.Name, warnings, err)
		}
	}

	if _, warnings, err := parse(t, "--dry-run", "--max-inactivity=1m"); err != nil || len(warnings) != 0 {
		t.Errorf("--max-inactivity: warnings %v, %v; want none", warnings, err)
	}
}

func TestGates(t *testing.T) {
	o, warnings, err := parse(t, "--dry-run", "--feature-gates=Analysis=true,NodeResourceTopology=true")
	if err != nil || !o.FeatureGates.Enabled(featuregate.NodeResourceTopology) || !o.FeatureGates.Enabled(featuregate.NodeResource) || !o.FeatureGates.Enabled(featuregate.PodResource) || o.FeatureGates.Enabled(featuregate.CraneCPUManager) {
		t.Errorf("parse = %+v, %v, want the named and default gates on, and CraneCPUManager off", o, err)
	}
	if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "Analysis has no effect") }) {
		t.Errorf("warnings are %v, want that Analysis has no effect", warnings)
	}
	if _, _, err := parse(t, "--feature-gates=Unheard=true"); err == nil {
		t.Error("parse of an unknown gate = nil, want an error")
	}
}

func TestServingFlags(t *testing.T) {
	for want, flags := range map[string][]string{
		"--bind-address":                 {"--dry-run", "--bind-address=nowhere"},
		"--max-inactivity":               {"--dry-run", "--max-inactivity=1s"},
		"--stop-timeout":                 {"--dry-run", "--stop-timeout=0s"},
		`Invalid value: "-1s"`:           {"--dry-run", "--collect-interval=-1s"},
		"--node-resource-reserved":       {"--dry-run", "--node-resource-reserved=cpu=140%"},
		"neither cpu nor memory":         {"--dry-run", "--node-resource-reserved=disk=40%"},
		"--default-cpu-policy":           {"--dry-run", "--default-cpu-policy=best"},
		"--cpu-manager-reconcile-period": {"--dry-run", "--cpu-manager-reconcile-period=0s"},
		"requires NodeResourceTopology":  {"--dry-run", "--feature-gates=CraneCPUManager=true"},
		"requires --feature-gates=Crane": {"--enforce=cpu-manager", "--node-labels=a=b"},
		"requires an API server":         {"--enforce=node-resource", "--node-labels=a=b"},
		"--node-labels":                  {"--dry-run", "--node-labels=a=b", "--kubeconfig=x"},
	} {
		if _, _, err := parse(t, flags...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", flags, err, want)
		}
	}

	if o, _, err := parse(t, "--dry-run", "--bind-address=0"); err != nil || o.serves() {
		t.Errorf("%v", err)
	}
}

// TestDocumented checks that the documentation lists every flag without effect, every gate and every kind of action.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/agent.md")
	if err != nil {
		t.Fatal(err)
	}

	var want []string
	for _, r := range deprecatedFlags() {
		if !strings.Contains(r.Replacement, "logs are lines") {
			want = append(want, "--"+r.Name)
		}
	}

	for _, name := range servedGates() {
		want = append(want, string(name))
	}

	for _, w := range append(want, enforceKindNames()...) {
		if !strings.Contains(string(text), "`"+w+"`") {
			t.Errorf("docs/reference/agent.md lacks %s, want every gate and kind", w)
		}
	}
}

// TestReserves checks that memory has a default reserve, the share above the shipped policy's water mark evict, unless it is named.
func TestReserves(t *testing.T) {
	policy, err := policyfile.Builtin()
	if err != nil {
		t.Fatal(err)
	}

	marks := policy.Marks[units.Memory]
	if got := float64(defaultMemoryReserve + marks.Evict); math.Abs(got-1) > 1e-9 {
		t.Errorf("the reserve and the water mark evict of %v sum up to %v, want 1", marks.Evict, got)
	}

	for args, want := range map[string]elasticresource.Reserves{
		"":                                 {Memory: defaultMemoryReserve},
		"--node-resource-reserved=cpu=40%": {CPU: 0.4, Memory: defaultMemoryReserve},
		"--node-resource-reserved=cpu=40%,memory=30%": {CPU: 0.4, Memory: 0.3},
		"--node-resource-reserved=memory=0%":          {},
	} {
		o, _, err := parse(t, append([]string{"--dry-run"}, strings.Fields(args)...)...)
		if err != nil {
			t.Fatal(err)
		}

		if got, err := o.Reclaim.reserves(); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", args, got, err, want)
		}
	}
}
