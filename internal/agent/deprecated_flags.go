// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import "crane.io/crane/internal/component/deprecatedflags"

// deprecatedFlags returns gocrane's flags without a function in crane-agent.
func deprecatedFlags() []deprecatedflags.Flag {
	return append([]deprecatedflags.Flag{
		{Name: "cgroup-driver", Default: "cgroupfs", Replacement: "the kubelet's driver is detected"},
		{Name: "runtime-endpoint", Replacement: "cgroups are read and written directly; no container runtime is asked"},
		{Name: "sys-path", Default: "/sys", Replacement: "use --host-root"},
		{Name: "ifaces", Default: "[eth0]", Replacement: "all interfaces of the host are measured; a rule chooses by the label NetInterface"},
	}, deprecatedflags.LogFlags()...)
}
