// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"crane.io/crane/internal/testbed/realnode/assets"
	"crane.io/crane/internal/testbed/realnode/nodeinit"
	"crane.io/crane/internal/testbed/realnode/nodespec"
)

// Paths in a node with CRI-O.
const (
	crioSocket = "/run/crio/crio.sock"
	crioDir    = "/opt/crane/crio"
	// boundedRunc is nodekit, which drops requests to runc that a namespace node cannot fulfill.
	boundedRunc = "/opt/crane/" + nodeinit.RuntimeName
	crioConfig  = configDir + "/crio.conf"
	crioPolicy  = configDir + "/policy.json"
)

// stepCRIO is the step of a node that starts CRI-O.
const stepCRIO = "crio"

// crioFiles returns the configuration files of CRI-O.
func crioFiles(o NodeOptions) (map[string]nodespec.File, error) {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return nil, fmt.Errorf("writing the configuration of CRI-O: %w", err)
	}

	conmon, err := exec.LookPath(assets.Conmon)
	if err != nil {
		return nil, fmt.Errorf("writing the configuration of CRI-O: %w", err)
	}

	if !o.Machine {
		runc = boundedRunc
	}

	return map[string]nodespec.File{
		crioConfig: {Content: crioConfiguration(o, runc, conmon)},
		// Images are built on this machine and are not signed.
		crioPolicy: {Content: `{"default": [{"type": "insecureAcceptAnything"}]}`},
	}, nil
}

// crioConfiguration returns CRI-O's configuration: defaults except for paths and features that test pods do not use.
func crioConfiguration(o NodeOptions, runc, conmon string) string {
	cgroups := "cgroup_manager = \"cgroupfs\"\nconmon_cgroup = \"pod\"" // the only cgroup that CRI-O supports without systemd
	if o.systemd() {
		cgroups = `cgroup_manager = "systemd"`
	}

	return fmt.Sprintf(`[crio]
storage_driver = "overlay"
[crio.api]
listen = %q
[crio.runtime]
%s
default_runtime = "runc"
apparmor_profile = "unconfined"
hooks_dir = []
disable_hostport_mapping = true
pinns_path = %q
[crio.runtime.runtimes.runc]
runtime_path = %q
monitor_path = %q
[crio.image]
pause_image = %q
signature_policy = %q
[crio.network]
plugin_dirs = [%q]
[crio.nri]
enable_nri = false
`, crioSocket, cgroups, crioDir+"/pinns", runc, conmon, assets.ImageName("pause"), crioPolicy, pluginDir)
}

// crioSteps returns the steps that import the images and start CRI-O.
func crioSteps(o NodeOptions) []nodespec.Step {
	return []nodespec.Step{
		{Name: stepImages, Args: []string{crioDir + "/images", imagesPath}},
		{
			Name: stepCRIO, Args: o.service(stepCRIO, crioDir+"/crio", "--config", crioConfig, "--config-dir", ""),
			Daemon: true, Restart: o.Restart, Socket: crioSocket,
		},
	}
}

// Paths of a split configuration.
const (
	splitConfig = configDir + "/kubelet.yaml"
	dropInDir   = configDir + "/kubelet.d"
)

// kubeletFiles returns the files of the kubelet's configuration and the flags that refer to them.
func kubeletFiles(o NodeOptions, services bool) (files map[string]nodespec.File, flags []string, err error) {
	k := kubeletConfiguration(o, services)
	if !o.SplitConfig {
		content, err := json.Marshal(k)
		if err != nil {
			return nil, nil, fmt.Errorf("kubelet configuration: %w", err)
		}

		return map[string]nodespec.File{kubeletConfig: {Content: string(content)}}, []string{"--config", kubeletConfig}, nil
	}

	// A marshaled KubeletConfiguration would contain zero durations that override the main file.
	dropIn, err := json.Marshal(map[string]string{"apiVersion": k.APIVersion, "kind": k.Kind, "reservedSystemCPUs": k.ReservedSystemCPUs})
	if err != nil {
		return nil, nil, fmt.Errorf("kubelet configuration: %w", err)
	}

	reserved := k.SystemReserved
	k.ReservedSystemCPUs = ""
	k.SystemReserved = nil

	content, err := json.Marshal(k)
	if err != nil {
		return nil, nil, fmt.Errorf("kubelet configuration: %w", err)
	}

	return map[string]nodespec.File{
		splitConfig:                     {Content: string(content)},
		dropInDir + "/10-reserved.conf": {Content: string(dropIn)},
	}, append([]string{"--config", splitConfig, "--config-dir", dropInDir}, reservedFlag(reserved)...), nil
}

// reservedFlag returns the flag --system-reserved.
func reservedFlag(reserved map[string]string) []string {
	if len(reserved) == 0 {
		return nil
	}

	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		pairs = append(pairs, name+"="+reserved[name])
	}

	return []string{"--system-reserved", strings.Join(pairs, ",")}
}
