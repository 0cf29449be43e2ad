// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// docs is the directory of the documentation.
const docs = "../../../docs"

// recipe is an example of values in the documentation.
type recipe struct {
	page, text string
	values     recipeValues
}

// recipeValues are the values that TestValuesOfDocs follows into the objects.
type recipeValues struct {
	Prometheus struct {
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers"`
		TLS     struct {
			CA struct {
				Secret string `json:"secret"`
			} `json:"ca"`
		} `json:"tls"`
		BearerToken, BasicAuth, HeadersSecret struct {
			Secret string `json:"secret"`
		}
	} `json:"prometheus"`
	Craned struct {
		ExtraContainers           []corev1.Container `json:"extraContainers"`
		PodLabels                 map[string]string  `json:"podLabels"`
		ServiceAccountAnnotations map[string]string  `json:"serviceAccountAnnotations"`
	} `json:"craned"`
}

// TestValuesOfDocs renders every example of values in the documentation, and follows the settings of Prometheus into the pods that read it:
// address, headers, Secrets, the proxy of a managed Prometheus and its identity.
func TestValuesOfDocs(t *testing.T) {
	recipes := recipesOfDocs(t)
	servers, proxies := 0, 0
	for i, r := range recipes {
		if r.values.Prometheus.URL != "" {
			servers++
		}
		if len(r.values.Craned.ExtraContainers) > 0 {
			proxies++
		}

		t.Run(fmt.Sprintf("%s %d", filepath.Base(r.page), i), func(t *testing.T) { r.check(t) })
	}

	if len(recipes) < 10 || servers < 8 || proxies != 3 {
		t.Errorf("%d examples, %d with the address of a server, %d with a proxy, want 10 or more, 8 or more and 3", len(recipes), servers, proxies)
	}
}

// recipesOfDocs returns the YAML examples whose names are all values of the chart.
func recipesOfDocs(t *testing.T) []recipe {
	t.Helper()

	content, err := os.ReadFile(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var known map[string]any
	if err := yaml.Unmarshal(content, &known); err != nil {
		t.Fatal(err)
	}

	var out []recipe
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	err = filepath.WalkDir(docs, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}

		page, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		for _, match := range block.FindAllSubmatch(page, -1) {
			var names map[string]any
			if yaml.Unmarshal(match[1], &names) != nil || len(names) == 0 {
				continue // Several documents, or no map.
			}

			isValues := true
			for name := range names {
				_, ok := known[name]
				isValues = isValues && ok
			}

			if !isValues {
				continue
			}

			r := recipe{page: path, text: string(match[1])}
			if err := yaml.Unmarshal(match[1], &r.values); err != nil {
				return fmt.Errorf("%s: %w in\n%s", path, err, match[1])
			}

			out = append(out, r)
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}

func (r recipe) check(t *testing.T) {
	t.Helper()

	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(r.text), 0o600); err != nil {
		t.Fatal(err)
	}

	wantReaders := []string{"craned", "metric-adapter"}
	args := []string{"--values", file}
	if r.values.Prometheus.HeadersSecret.Secret == "" { // The dashboard does not read it.
		args = append(args, "--set", "dashboard.enabled=true")
		wantReaders = append(wantReaders, "crane-dashboard")
	}

	if address := r.values.Prometheus.URL; address != "" {
		args = append(args, "--set", "prometheus.url="+address) // In place of that of render.
	}

	readers, accounts := 0, 0
	for _, o := range render(t, args...) {
		name := o.GetName()
		if !slices.Contains(wantReaders, name) {
			continue
		}

		switch o.GetKind() {
		case "ServiceAccount":
			accounts++
			for key, value := range r.values.Craned.ServiceAccountAnnotations {
				if o.GetAnnotations()[key] != value {
					t.Errorf("ServiceAccount %s has no annotation %s: %s, want it", name, key, value)
				}
			}

		case "Deployment":
			readers++
			r.checkReader(t, name, convert[appsv1.Deployment](t, o).Spec.Template)
		}
	}

	if readers != len(wantReaders) || accounts != len(wantReaders) {
		t.Errorf("%d Deployments, %d ServiceAccounts, want those of %v", readers, accounts, wantReaders)
	}
}

// checkReader checks a pod that reads Prometheus.
func (r recipe) checkReader(t *testing.T, name string, pod corev1.PodTemplateSpec) {
	t.Helper()

	p := r.values.Prometheus
	c := pod.Spec.Containers[0]

	if p.URL == "" {
		return
	}

	flag := "--prometheus-address="
	if name == "crane-dashboard" {
		flag = "--prometheus="
	}

	wantArgs := []string{flag + p.URL}
	for header, value := range p.Headers {
		wantArgs = append(wantArgs, fmt.Sprintf("--prometheus-header=%s: %s", header, value))
	}

	for _, arg := range wantArgs {
		if !slices.Contains(c.Args, arg) {
			t.Errorf("%s has the arguments %v, want %s", name, c.Args, arg)
		}
	}

	for _, secret := range []string{p.TLS.CA.Secret, p.BearerToken.Secret, p.BasicAuth.Secret, p.HeadersSecret.Secret} {
		if secret != "" && !readsSecret(pod.Spec, secret) {
			t.Errorf("%s: Secret %s is neither mounted in a directory that a flag names nor in the environment, want one of them", name, secret)
		}
	}

	for key, value := range r.values.Craned.PodLabels {
		if pod.Labels[key] != value {
			t.Errorf("%s has the labels %v, want %s: %s", name, pod.Labels, key, value)
		}
	}

	for _, want := range r.values.Craned.ExtraContainers {
		i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == want.Name && c.Image == want.Image })
		if i < 1 {
			t.Errorf("%s has no container %s, want one after the first", name, want.Name)
			continue
		}

		if err := checkProxy(pod.Spec.Containers[i], c, p.URL); err != nil {
			t.Errorf("%s: container %s: %v", name, want.Name, err)
		}
	}
}

// readsSecret reports whether the first container has an environment variable of a Secret, or an argument with a path in a mount of it.
func readsSecret(pod corev1.PodSpec, secret string) bool {
	c := pod.Containers[0]
	if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name == secret
	}) {
		return true
	}

	for _, v := range pod.Volumes {
		if v.Secret == nil || v.Secret.SecretName != secret {
			continue
		}

		for _, m := range c.VolumeMounts {
			if m.Name == v.Name && slices.ContainsFunc(c.Args, func(arg string) bool { return strings.Contains(arg, "="+m.MountPath+"/") }) {
				return true
			}
		}
	}

	return false
}

// checkProxy checks that a proxy listens on the port of the address, which the component beside it does not use, and that a namespace of the
// Pod Security level restricted admits it.
func checkProxy(proxy, component corev1.Container, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}

	if u.Hostname() != "127.0.0.1" {
		return fmt.Errorf("the address %s is not that of a proxy in the same pod", address)
	}

	listens := slices.ContainsFunc(proxy.Args, func(arg string) bool { return strings.HasSuffix(arg, u.Host) }) ||
		slices.ContainsFunc(proxy.Env, func(e corev1.EnvVar) bool { return e.Name == "LISTENING_PORT" && e.Value == u.Port() })
	if !listens {
		return fmt.Errorf("it does not listen on %s: %v %v", u.Host, proxy.Args, proxy.Env)
	}

	for _, port := range component.Ports {
		if fmt.Sprint(port.ContainerPort) == u.Port() {
			return fmt.Errorf("port %s is that of %s for %s", u.Port(), component.Name, port.Name)
		}
	}

	s := proxy.SecurityContext
	if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") {
		return fmt.Errorf("the Pod Security level restricted refuses it: %+v", s)
	}

	return nil
}
