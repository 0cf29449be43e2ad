// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// startCraneScheduler starts crane-scheduler beside the default scheduler, with the configuration and the RBAC rules of
// config/. It schedules pods with schedulerName crane-scheduler.
func (p *playground) startCraneScheduler(ctx context.Context) error {
	d, err := newDeployment(ctx, p.control, componentCraneScheduler)
	if err != nil {
		return err
	}

	policy, err := writePolicy(p.dir, d.objects)
	if err != nil {
		return err
	}

	addresses, err := p.freeAddresses(ctx, 2)
	if err != nil {
		return err
	}

	_, port, err := splitAddress(addresses[0])
	if err != nil {
		return err
	}

	// The second address serves explanations, which `crane explain scheduling` and the dashboard read.
	p.explainAddress = addresses[1]

	file, err := writeSchedulerConfig(p.dir, d, policy, p.explainAddress)
	if err != nil {
		return err
	}

	p.addScrapeTarget(componentCraneScheduler, "https://"+addresses[0]+"/metrics")
	return p.startChild(p.childSpec(d.binarySpec, map[string]string{
		"config": file, "secure-port": port, "bind-address": "127.0.0.1",
		"cert-dir":                  filepath.Join(p.dir, d.name),
		"authentication-kubeconfig": d.kubeconfig, "authorization-kubeconfig": d.kubeconfig,
	}))
}

// writeSchedulerConfig writes the scheduler's configuration with the values that differ from those in a pod: the
// kubeconfig, the policy file and the address of explanations.
func writeSchedulerConfig(dir string, d deployment, policy, explainAddress string) (string, error) {
	text, err := configMapText(d.objects, componentCraneScheduler, "config.yaml")
	if err != nil {
		return "", err
	}

	var c map[string]any
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return "", fmt.Errorf("configuration of %s: %w", componentCraneScheduler, err)
	}

	if err := unstructured.SetNestedField(c, d.kubeconfig, "clientConnection", "kubeconfig"); err != nil {
		return "", fmt.Errorf("configuration of %s: %w", componentCraneScheduler, err)
	}

	profiles, _, err := unstructured.NestedSlice(c, "profiles")
	if err != nil {
		return "", fmt.Errorf("configuration of %s: %w", componentCraneScheduler, err)
	}

	// The values are set in the arguments of the plugin; everything else stays as deployed.
	set := false
	for _, item := range profiles {
		profile, _ := item.(map[string]any)
		plugins, _ := profile["pluginConfig"].([]any)
		for _, entry := range plugins {
			plugin, _ := entry.(map[string]any)
			args, ok := plugin["args"].(map[string]any)
			if ok && plugin["name"] == "Dynamic" {
				args["policyConfigPath"] = policy
				args["explainAddress"] = explainAddress
				set = true
			}
		}
	}

	if !set {
		return "", errors.New("config contains no arguments of plugin Dynamic")
	}

	c["profiles"] = profiles
	content, err := yaml.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("configuration of %s: %w", componentCraneScheduler, err)
	}

	path := filepath.Join(dir, "crane-scheduler.yaml")
	return path, os.WriteFile(path, content, 0o600)
}

// configMapText returns the value of a key of a ConfigMap of config/.
func configMapText(objects []*unstructured.Unstructured, name, key string) (string, error) {
	for _, o := range objects {
		if o.GetKind() != "ConfigMap" || o.GetName() != name {
			continue
		}

		text, found, err := unstructured.NestedString(o.Object, "data", key)
		if err != nil || !found {
			return "", fmt.Errorf("config map %s has no %s", name, key)
		}

		return text, nil
	}

	return "", fmt.Errorf("config contains no ConfigMap %s", name)
}

// policyPath returns the path of the node-load policy file in the data directory.
func policyPath(dir string) string { return filepath.Join(dir, policyKey) }
