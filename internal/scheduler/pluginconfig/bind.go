// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginconfig

import (
	"slices"

	schedulerv1 "k8s.io/kube-scheduler/config/v1"
)

// SetBindOrder lets NodeResourceTopologyMatch bind before the default binder in all profiles that enable it. Plugins of
// multiPoint are appended to the default ones, so that the default binder would bind all pods before the plugin is
// called. A profile that lists the plugin under bind, as enabled or disabled, is left as it is.
func SetBindOrder(config *schedulerv1.KubeSchedulerConfiguration) {
	listed := func(plugins []schedulerv1.Plugin) bool {
		return slices.ContainsFunc(plugins, func(p schedulerv1.Plugin) bool { return p.Name == NodeResourceTopologyMatchName })
	}
	for _, profile := range config.Profiles {
		p := profile.Plugins
		if p == nil || !listed(p.MultiPoint.Enabled) && !listed(p.Reserve.Enabled) || listed(p.Bind.Enabled) || listed(p.Bind.Disabled) {
			continue
		}

		p.Bind.Enabled = append([]schedulerv1.Plugin{{Name: NodeResourceTopologyMatchName}}, p.Bind.Enabled...)
	}
}
