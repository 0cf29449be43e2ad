// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/numawire"
	"crane.io/crane/pkg/numa"
)

const (
	// maxConfiguration bounds what is read of the kubelet's configuration; one has some KiB.
	maxConfiguration = 1 << 20
	// askAgain is how often the API server is asked for it. It changes when the kubelet is started anew.
	askAgain = 5 * time.Minute
	// asked is how long the API server may take.
	asked = 10 * time.Second
	// static is the kubelet's policy of assigning CPUs itself.
	static = "static"
)

// Kubelet is what matters here of a kubelet's configuration.
type Kubelet struct {
	// Source says where it is from.
	Source string
	// Static says that the kubelet assigns CPUs itself.
	Static bool
	// Reserved is what it keeps for itself and for the system; CPU among it where ReservedCPUs does not say which.
	Reserved corev1.ResourceList
	// ReservedCPUs are those that it keeps by number.
	ReservedCPUs numa.CPUSet
}

// configuration has the fields of kubelet.config.k8s.io/v1beta1 that are read. Others may be whatever a later kubelet has.
type configuration struct {
	Kind               string            `json:"kind"`
	CPUManagerPolicy   string            `json:"cpuManagerPolicy"`
	KubeReserved       map[string]string `json:"kubeReserved"`
	SystemReserved     map[string]string `json:"systemReserved"`
	ReservedSystemCPUs string            `json:"reservedSystemCPUs"`
}

// ParseKubelet reads a KubeletConfiguration, as YAML or JSON.
func ParseKubelet(content []byte) (Kubelet, error) {
	var c configuration
	if err := yaml.Unmarshal(content, &c); err != nil {
		return Kubelet{}, fmt.Errorf("no configuration: %w", err)
	}
	if c.Kind != "KubeletConfiguration" {
		return Kubelet{}, fmt.Errorf("kind is %.40q, want KubeletConfiguration", c.Kind)
	}
	return c.kubelet()
}

// parseConfigz reads what /configz of a kubelet answers.
func parseConfigz(content []byte) (Kubelet, error) {
	var answer struct {
		Configuration *configuration `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		return Kubelet{}, fmt.Errorf("no JSON: %w", err)
	}
	if answer.Configuration == nil {
		return Kubelet{}, errors.New("has no kubeletconfig")
	}
	return answer.Configuration.kubelet()
}

func (c *configuration) kubelet() (Kubelet, error) {
	k := Kubelet{Static: c.CPUManagerPolicy == static, Reserved: corev1.ResourceList{}}
	for field, list := range map[string]map[string]string{"kubeReserved": c.KubeReserved, "systemReserved": c.SystemReserved} {
		for name, text := range list {
			name := corev1.ResourceName(name)
			q, err := resource.ParseQuantity(text)
			sum := k.Reserved[name]
			if err == nil {
				if _, err = numawire.Amount(name, q); err == nil {
					sum.Add(q)
					_, err = numawire.Amount(name, sum)
				}
			}
			if err != nil {
				return Kubelet{}, fmt.Errorf("%s: %.40q of %.40q: %w", field, text, name, err)
			}
			k.Reserved[name] = sum
		}
	}
	var err error
	if k.ReservedCPUs, err = numa.ParseCPUSet(c.ReservedSystemCPUs); err != nil {
		return Kubelet{}, fmt.Errorf("reservedSystemCPUs: %w", err)
	}
	if n := k.ReservedCPUs.Len(); n > 0 {
		k.Reserved[corev1.ResourceCPU] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	return k, nil
}

// KubeletReader finds a kubelet's configuration. It is not safe for concurrent use.
type KubeletReader struct {
	Root host.Root
	// Dir is the kubelet's root directory as the host sees it, such as /var/lib/kubelet.
	Dir string
	// File is its configuration, as the host sees it; empty for config.yaml in Dir.
	File string
	// Client asks the API server, which asks the kubelet, where there is no file; nil where there is none.
	Client kubernetes.Interface
	Node   string
	Clock  clock.PassiveClock

	last Kubelet // of the API server
	at   time.Time
}

// Read reads the file or, where there is none, asks for nodes/configz. Whatever these say, a kubelet assigns
// CPUs itself that says so in its state file: flags and files that it has besides are not seen otherwise.
func (r *KubeletReader) Read(ctx context.Context) (Kubelet, error) {
	path := cmp.Or(r.File, filepath.Join(r.Dir, "config.yaml"))
	content, err := r.read(path)
	var k Kubelet
	switch {
	case err == nil:
		if k, err = ParseKubelet(content); err != nil {
			return Kubelet{}, fmt.Errorf("the kubelet's configuration %s: %w", path, err)
		}
		k.Source = path
	case !errors.Is(err, fs.ErrNotExist):
		return Kubelet{}, fmt.Errorf("the kubelet's configuration: %w", err)
	case r.Client == nil:
		return Kubelet{}, fmt.Errorf("the kubelet's configuration is not known: there is no %s, and no API server to ask", path)
	default:
		if k, err = r.ask(ctx); err != nil {
			return Kubelet{}, fmt.Errorf("the kubelet's configuration is not known: there is no %s, and %w", path, err)
		}
	}
	if policy := r.Running(); policy == static && !k.Static {
		k.Static = true
		k.Source += ", with policy static by its cpu_manager_state"
	}
	return k, nil
}

// Running is the policy of the CPU manager in the kubelet's state file; empty where there is none that can be read.
func (r *KubeletReader) Running() string {
	var state struct {
		PolicyName string `json:"policyName"`
	}
	content, err := r.read(filepath.Join(r.Dir, "cpu_manager_state"))
	if err != nil || json.Unmarshal(content, &state) != nil {
		return ""
	}
	return strings.ToLower(state.PolicyName)
}

func (r *KubeletReader) read(name string) ([]byte, error) {
	path := r.Root.Path(name)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // The error names the file.
	}
	if !info.Mode().IsRegular() || info.Size() > maxConfiguration {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", path, maxConfiguration)
	}
	return os.ReadFile(path) //nolint:wrapcheck // The error names the file.
}

// ask asks the API server; an answer holds for askAgain.
func (r *KubeletReader) ask(ctx context.Context) (Kubelet, error) {
	if !r.at.IsZero() && r.Clock.Since(r.at) < askAgain {
		return r.last, nil
	}
	ctx, cancel := context.WithTimeout(ctx, asked)
	defer cancel()
	content, err := r.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(r.Node).SubResource("proxy").Suffix("configz").DoRaw(ctx)
	if err != nil {
		return Kubelet{}, fmt.Errorf("nodes/%s/proxy/configz: %w", r.Node, err)
	}
	k, err := parseConfigz(content)
	if err != nil {
		return Kubelet{}, fmt.Errorf("nodes/%s/proxy/configz: %w", r.Node, err)
	}
	k.Source = "nodes/" + r.Node + "/proxy/configz"
	r.last, r.at = k, r.Clock.Now()
	return k, nil
}
