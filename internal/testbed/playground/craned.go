// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/redirect"
)

// binarySpec contains what a Deployment or DaemonSet of config/ defines for a binary: the playground starts the child
// process as the cluster would start the container.
type binarySpec struct {
	name, namespace, serviceAccount string
	args                            []string
	env                             []string
}

// findDeployment reads the Deployment of that name from manifests. Environment variables from the API (fieldRef) get
// the value that they would have in the pod; other sources are an error, so that none is silently empty.
func findDeployment(objects []*unstructured.Unstructured, name string) (binarySpec, error) {
	return findPodTemplate(objects, "Deployment", name, nil)
}

// findDaemonSet reads the DaemonSet of that name, like findDeployment, for its pod on a node.
func findDaemonSet(objects []*unstructured.Unstructured, name, node string) (binarySpec, error) {
	return findPodTemplate(objects, "DaemonSet", name, map[string]string{"spec.nodeName": node, "metadata.name": name + "-" + node})
}

func findPodTemplate(objects []*unstructured.Unstructured, kind, name string, fields map[string]string) (binarySpec, error) {
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	if i < 0 {
		return binarySpec{}, fmt.Errorf("config contains no %s %s", kind, name)
	}

	var pod corev1.PodTemplateSpec
	template, _, err := unstructured.NestedMap(objects[i].Object, "spec", "template")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(template, &pod)
	}

	if err != nil {
		return binarySpec{}, fmt.Errorf("reading the pod template of %s %s: %w", kind, name, err)
	}

	if n := len(pod.Spec.Containers); n != 1 {
		return binarySpec{}, fmt.Errorf("%s %s: %d containers, want 1", kind, name, n)
	}

	c := pod.Spec.Containers[0]
	out := binarySpec{
		name:           name,
		namespace:      objects[i].GetNamespace(),
		serviceAccount: pod.Spec.ServiceAccountName,
		args:           c.Args,
	}

	// A pod's environment may refer to its own fields, which the child process does not have.
	fieldValues := map[string]string{"metadata.namespace": out.namespace}
	maps.Copy(fieldValues, fields)

	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			ok := e.ValueFrom.FieldRef != nil
			if ok {
				value, ok = fieldValues[e.ValueFrom.FieldRef.FieldPath]
			}

			if !ok {
				return binarySpec{}, fmt.Errorf("%s %s: env %s: the source of its value is not supported", kind, name, e.Name)
			}
		}

		out.env = append(out.env, e.Name+"="+value)
	}

	return out, nil
}

// deployment contains what is needed to start a binary that has a Deployment.
type deployment struct {
	binarySpec
	// objects are all of config/.
	objects []*unstructured.Unstructured
	// kubeconfig authenticates as the binary's service account.
	kubeconfig string
}

// newDeployment returns the deployment of a binary with a kubeconfig of its service account.
func newDeployment(ctx context.Context, control *controlplane.ControlPlane, name string) (deployment, error) {
	objects, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		return deployment{}, err
	}

	d, err := findDeployment(objects, name)
	if err != nil {
		return deployment{}, err
	}

	kubeconfig, err := kubeconfigOf(ctx, control, d)
	return deployment{binarySpec: d, objects: objects, kubeconfig: kubeconfig}, err
}

// kubeconfigOf writes a kubeconfig for a binary's service account and returns its path.
func kubeconfigOf(ctx context.Context, control *controlplane.ControlPlane, d binarySpec) (string, error) {
	return control.KubeconfigFor(ctx, d.name, controlplane.ServiceAccount(d.namespace, d.serviceAccount))
}

// argsWith returns the arguments with flags set: existing flags are replaced, others appended.
func (d binarySpec) argsWith(flags map[string]string) []string {
	var args []string
	for _, a := range d.args {
		name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if _, replaced := flags[name]; !replaced {
			args = append(args, a)
		}
	}

	for name, v := range flags {
		args = append(args, "--"+name+"="+v)
	}

	return args
}

// startCraned starts craned as a child process with a token of its own ServiceAccount, and so with the RBAC rules of
// config/rbac.
func (p *playground) startCraned(ctx context.Context) error {
	d, err := newDeployment(ctx, p.control, componentCraned)
	if err != nil {
		return err
	}

	addresses, err := p.freeAddresses(ctx, 4)
	if err != nil {
		return err
	}

	// Real nodes put the playground in a namespace of its own; this port of the machine is forwarded to it.
	if port := p.options.port(portCraned); port != 0 {
		addresses[0] = fmt.Sprintf("127.0.0.1:%d", port)
	}

	webHost, webPort, err := net.SplitHostPort(addresses[2])
	if err != nil {
		return err
	}

	policy, err := writePolicy(p.dir, d.objects)
	if err != nil {
		return err
	}

	webhookHost, webhookPort, err := splitAddress(addresses[3])
	if err != nil {
		return err
	}

	p.cranedMetrics = addresses[0]
	p.cranedWeb = addresses[2]
	flags := map[string]string{
		"kubeconfig":                d.kubeconfig,
		"prometheus-address":        p.prometheus.URL(),
		"metrics-bind-address":      addresses[0],
		"metrics-secure":            "false", // loopback only; readable by a browser
		"server-bind-address":       webHost,
		"server-bind-port":          webPort,
		"health-probe-bind-address": addresses[1],
		"prediction-state-dir":      filepath.Join(p.dir, "craned", "forecasts"),
		"policy-config-path":        policy,
		"webhook-host":              webhookHost,
		"webhook-port":              webhookPort,
	}

	// The flags of a scenario take precedence.
	if p.options.scenario != nil {
		maps.Copy(flags, p.options.scenario.Craned)
	}

	if err := p.startChild(p.childSpec(d.binarySpec, flags)); err != nil {
		return err
	}

	p.addScrapeTarget(componentCraned, "http://"+addresses[0]+"/metrics")

	return configureWebhooks(ctx, p.applier, d.objects, addresses[3])
}

// configureWebhooks points craned's webhook configurations to its address on loopback, because no Service routes to it.
func configureWebhooks(ctx context.Context, applier *manifest.Applier, objects []*unstructured.Unstructured, address string) error {
	for _, o := range objects {
		if !redirect.IsWebhookConfiguration(o) {
			continue
		}

		local, err := redirect.WebhookConfiguration(o, address)
		if err != nil {
			return err
		}

		if err := applier.Apply(ctx, local); err != nil {
			return err
		}
	}

	return nil
}

// The ConfigMap of config/ with the node-load policy and its key.
const (
	policyConfigMap = "crane-node-load-policy"
	policyKey       = "policy.yaml"
)

// writePolicy writes the node-load policy to a file, as a kubelet mounts it into a pod, and returns its path. An
// existing file is kept: users of --data-dir may have changed it.
func writePolicy(dir string, objects []*unstructured.Unstructured) (string, error) {
	path := policyPath(dir)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}

	text, err := configMapText(objects, policyConfigMap, policyKey)
	if err != nil {
		return "", err
	}

	return path, os.WriteFile(path, []byte(text), 0o600)
}

// splitAddress is net.SplitHostPort with an error that names the address.
func splitAddress(address string) (host, port string, err error) {
	if host, port, err = net.SplitHostPort(address); err != nil {
		return "", "", fmt.Errorf("address %s: %w", address, err)
	}

	return host, port, nil
}

// checkBinaries returns an error for the first binary that is missing in dir.
func checkBinaries(dir string, names ...string) error {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("%w (run make build, or set --bin-dir)", err)
		}
	}

	return nil
}
