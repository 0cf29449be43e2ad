// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/pkg/units"
	"crane.io/crane/test/controlplanetest"
)

// TestOneWaterMarkPolicy installs config/ and checks that the agent, the scheduler and craned read one policy, by which the agent evicts
// only above the marks at which the scheduler closes a node: otherwise pods would be placed and evicted in turn.
func TestOneWaterMarkPolicy(t *testing.T) {
	control := controlplanetest.ForTest(t, controlplane.Options{})
	applier, err := manifest.NewApplier(control.Config(), "config-test")
	if err != nil {
		t.Fatal(err)
	}

	if err := applier.Apply(t.Context(), manifests(t)...); err != nil {
		t.Fatal(err)
	}

	c, err := client.New(control.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}

	get := func(o client.Object, name string) {
		t.Helper()

		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "crane-system", Name: name}, o); err != nil {
			t.Fatal(err)
		}
	}

	var agent appsv1.DaemonSet
	var scheduler, craned appsv1.Deployment
	get(&agent, "crane-agent")
	get(&scheduler, "crane-scheduler")
	get(&craned, "craned")

	// read returns the content of a file in a pod, and where it is from.
	read := func(spec *corev1.PodSpec, file string) (content, source string) {
		t.Helper()

		for _, mount := range spec.Containers[0].VolumeMounts {
			if path.Dir(file) != mount.MountPath || mount.SubPath != "" { // with a subPath changes would not come through
				continue
			}

			at := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
			if at < 0 || spec.Volumes[at].ConfigMap == nil {
				continue
			}

			var cm corev1.ConfigMap
			get(&cm, spec.Volumes[at].ConfigMap.Name)
			return cm.Data[path.Base(file)], fmt.Sprintf("%s/%s", cm.Name, path.Base(file))
		}

		t.Errorf("%s is not mounted, want a volume", file)
		return "", ""
	}

	flag := func(spec *corev1.PodSpec, name string) string {
		for _, arg := range spec.Containers[0].Args {
			if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
				return value
			}
		}

		t.Errorf("there is no --%s, want one", name)
		return ""
	}

	text, from := read(&agent.Spec.Template.Spec, flag(&agent.Spec.Template.Spec, "policy-config-path"))
	config, _ := read(&scheduler.Spec.Template.Spec, flag(&scheduler.Spec.Template.Spec, "config"))

	_, schedulerFrom := read(&scheduler.Spec.Template.Spec, dynamicPolicyPath(t, config))
	_, cranedFrom := read(&craned.Spec.Template.Spec, flag(&craned.Spec.Template.Spec, "policy-config-path"))
	if from == "" || from != schedulerFrom || from != cranedFrom {
		t.Errorf("the agent reads %q, the scheduler %q, craned %q, want the same ConfigMap", from, schedulerFrom, cranedFrom)
	}

	policy, err := policyfile.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}

	closed := map[units.Resource]bool{}
	for _, limit := range policy.Limits {
		resource := policy.Metrics[limit.Metric].Resource
		closed[resource] = true

		if evict := policy.Marks[resource].Evict; evict <= limit.Max {
			t.Errorf("the agent evicts above %v of %s, want more than %v, up to which the scheduler places pods", evict, resource, limit.Max)
		}
	}

	if !closed[units.CPU] || !closed[units.Memory] {
		t.Errorf("the scheduler has limits for %v, want CPU and memory", closed)
	}
}

// dynamicPolicyPath returns the policy file of the plugin Dynamic in a scheduler configuration.
func dynamicPolicyPath(t *testing.T, text string) string {
	t.Helper()

	var config struct {
		Profiles []struct {
			PluginConfig []struct {
				Name string
				Args struct{ PolicyConfigPath string }
			}
		}
	}

	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}

	for _, profile := range config.Profiles {
		for _, plugin := range profile.PluginConfig {
			if plugin.Name == "Dynamic" {
				return plugin.Args.PolicyConfigPath
			}
		}
	}

	t.Error("the scheduler does not configure Dynamic, want an argument with its policy")
	return ""
}
