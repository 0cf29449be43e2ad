// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config_test applies what config/ holds to a real API server: every manifest is accepted, twice, the
// kustomization names them all, and they name only what exists.
package config_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/controlplanetest"
)

func manifests(t *testing.T) []*unstructured.Unstructured {
	t.Helper()

	objects, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		t.Fatal(err)
	}

	return objects
}

func TestManifestsApply(t *testing.T) {
	control := controlplanetest.ForTest(t, controlplane.Options{})
	applier, err := manifest.NewApplier(control.Config(), "config-test")
	if err != nil {
		t.Fatal(err)
	}

	objects := manifests(t)
	if len(objects) < 20 {
		t.Fatalf("config/ has %d objects, want 20 or more: the CRDs alone are more", len(objects))
	}

	if err := applier.Apply(t.Context(), objects...); err != nil {
		t.Fatalf("first apply: %v", err)
	}

	if err := applier.Apply(t.Context(), objects...); err != nil {
		t.Errorf("second apply: %v", err)
	}
}

// TestKustomizationNamesEveryFile fails when a manifest is added and not named, or named and gone.
func TestKustomizationNamesEveryFile(t *testing.T) {
	named := kustomized(t, "../../../config", "")
	var held []string
	err := fs.WalkDir(config.Manifests, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path.Base(name) != "kustomization.yaml" {
			held = append(held, name)
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	slices.Sort(named)
	slices.Sort(held)

	if !slices.Equal(named, held) {
		t.Errorf("the kustomization names\n%s\nwant as in config/\n%s", strings.Join(named, "\n"), strings.Join(held, "\n"))
	}
}

func kustomized(t *testing.T, root, dir string) []string {
	t.Helper()

	content, err := os.ReadFile(path.Join(root, dir, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	var k struct{ Resources []string }
	if err := yaml.Unmarshal(content, &k); err != nil {
		t.Fatal(err)
	}

	var files []string
	for _, r := range k.Resources {
		if path.Ext(r) == ".yaml" {
			files = append(files, path.Join(dir, r))
		} else {
			files = append(files, kustomized(t, root, path.Join(dir, r))...)
		}
	}

	return files
}

// TestServicesFindTheirPods: a Service selects the labels of a pod template of config/ and a port that it names; a
// ServiceAccount that is used exists.
func TestServicesFindTheirPods(t *testing.T) {
	deployments := map[string]appsv1.Deployment{}
	accounts := map[string]bool{}
	var services []corev1.Service
	for _, o := range manifests(t) {
		switch o.GetKind() {
		case "Deployment":
			deployments[o.GetName()] = convert[appsv1.Deployment](t, o)
		case "Service":
			services = append(services, convert[corev1.Service](t, o))
		case "ServiceAccount":
			accounts[o.GetNamespace()+"/"+o.GetName()] = true
		}
	}

	if len(deployments) == 0 || len(services) == 0 {
		t.Fatalf("config/ has %d Deployments and %d Services, want some of each", len(deployments), len(services))
	}

	for name, d := range deployments {
		if account := d.Namespace + "/" + d.Spec.Template.Spec.ServiceAccountName; !accounts[account] {
			t.Errorf("Deployment %s uses ServiceAccount %s, which config/ does not hold, want it there", name, account)
		}
	}

	for _, s := range services {
		for _, port := range s.Spec.Ports {
			if !slices.ContainsFunc(slices.Collect(maps.Values(deployments)), func(d appsv1.Deployment) bool {
				return selects(s, d.Spec.Template) && names(d.Spec.Template, port.TargetPort.String())
			}) {
				t.Errorf("Service %s: no pod has its labels and a port %s, want one", s.Name, port.TargetPort.String())
			}
		}
	}
}

// TestAgentOfANode checks that the DaemonSet uses an account of config/, has no capability, runs on every node, and writes only to
// declared directories of the host.
func TestAgentOfANode(t *testing.T) {
	accounts := map[string]bool{}
	var agent *appsv1.DaemonSet
	for _, o := range manifests(t) {
		switch o.GetKind() {
		case "DaemonSet":
			d := convert[appsv1.DaemonSet](t, o)
			agent = &d
		case "ServiceAccount":
			accounts[o.GetNamespace()+"/"+o.GetName()] = true
		}
	}

	if agent == nil || len(agent.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("config/ has the DaemonSet %+v, want one container", agent)
	}

	pod := agent.Spec.Template.Spec
	c := pod.Containers[0]

	if !accounts[agent.Namespace+"/"+pod.ServiceAccountName] {
		t.Errorf("it uses ServiceAccount %s, which config/ does not hold, want it there", pod.ServiceAccountName)
	}
	if pod.HostPID || pod.HostNetwork || pod.HostIPC || c.SecurityContext.Privileged != nil || len(c.SecurityContext.Capabilities.Add) > 0 || *c.SecurityContext.AllowPrivilegeEscalation {
		t.Errorf("the agent has the security context %+v, want no access to namespaces of the host and no capabilities", c.SecurityContext)
	}
	if len(pod.Tolerations) != 1 || pod.Tolerations[0] != (corev1.Toleration{Operator: corev1.TolerationOpExists}) {
		t.Errorf("the agent has the tolerations %+v, want it on every node", pod.Tolerations)
	}

	if !slices.Contains(c.Args, "--dry-run") {
		t.Errorf("the agent has the arguments %v, want --dry-run", c.Args)
	}

	paths := map[string]string{}
	const policy = "node-load-policy" // The water marks of the scheduler, from a ConfigMap.

	for _, v := range pod.Volumes {
		if v.Name == policy && v.ConfigMap != nil {
			continue
		}

		if v.HostPath == nil {
			t.Errorf("volume %s is not of the host, want a host path", v.Name)
			continue
		}

		paths[v.Name] = v.HostPath.Path
	}

	var written []string
	for _, m := range c.VolumeMounts {
		if m.Name == policy && m.ReadOnly && m.MountPath == "/etc/crane" {
			continue
		}

		if paths[m.Name] == "" {
			t.Errorf("mount %s has no volume, want one", m.Name)
		}
		if !m.ReadOnly {
			written = append(written, paths[m.Name])
		}
		if m.Name != "state" && m.MountPath != "/host"+paths[m.Name] {
			t.Errorf("%s is mounted at %s, want it below /host", paths[m.Name], m.MountPath)
		}
	}

	slices.Sort(written)
	if !slices.Equal(written, []string{"/sys/fs/cgroup", "/var/lib/crane-agent"}) {
		t.Errorf("the agent writes to %v, want cgroups and its state alone", written)
	}
	if !slices.Contains(c.Args, "--metrics-secure=true") || c.LivenessProbe.HTTPGet.Scheme != corev1.URISchemeHTTPS || c.ReadinessProbe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
		t.Errorf("the agent has the arguments %v, want metrics and probes over TLS", c.Args)
	}
	if c.LivenessProbe.HTTPGet.Path != "/health-check" || c.ReadinessProbe.HTTPGet.Path != "/readyz" || !names(agent.Spec.Template, c.LivenessProbe.HTTPGet.Port.String()) {
		t.Errorf("probes %+v, %+v, want /health-check and /readyz on a named port", c.LivenessProbe, c.ReadinessProbe)
	}
}

func convert[T any](t *testing.T, o *unstructured.Unstructured) T {
	t.Helper()

	var out T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &out); err != nil {
		t.Fatal(err)
	}

	return out
}

func selects(s corev1.Service, template corev1.PodTemplateSpec) bool {
	for k, v := range s.Spec.Selector {
		if template.Labels[k] != v {
			return false
		}
	}

	return len(s.Spec.Selector) > 0
}

func names(template corev1.PodTemplateSpec, port string) bool {
	for _, c := range template.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == port {
				return true
			}
		}
	}

	return false
}
