// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import "crane.io/crane/internal/component/deprecatedflags"

// retiredFlags are gocrane's that have lost their meaning in crane-agent.
func retiredFlags() []deprecatedflags.Flag {
	return append([]deprecatedflags.Flag{
		{Name: "cgroup-driver", Default: "cgroupfs", Instead: "the kubelet's driver is detected"},
		{Name: "runtime-endpoint", Instead: "cgroups are read and written directly; no container runtime is asked"},
		{Name: "sys-path", Default: "/sys", Instead: "use --host-root"},
		{Name: "ifaces", Default: "[eth0]", Instead: "all interfaces of the host are measured; a rule chooses by the label NetInterface"},
	}, deprecatedflags.LogFlags()...)
}
