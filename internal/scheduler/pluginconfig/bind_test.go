// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginconfig

import (
	"slices"
	"testing"

	schedulerv1 "k8s.io/kube-scheduler/config/v1"
)

func TestSetBindOrder(t *testing.T) {
	ours := schedulerv1.Plugin{Name: NodeResourceTopologyMatchName}
	other := schedulerv1.Plugin{Name: "DefaultBinder"}
	set := func(plugins ...schedulerv1.Plugin) schedulerv1.PluginSet {
		return schedulerv1.PluginSet{Enabled: plugins}
	}
	for name, c := range map[string]struct {
		plugins *schedulerv1.Plugins
		want    []schedulerv1.Plugin
	}{
		"no plugins":         {},
		"not enabled":        {plugins: &schedulerv1.Plugins{MultiPoint: set(other)}},
		"multiPoint":         {plugins: &schedulerv1.Plugins{MultiPoint: set(other, ours)}, want: []schedulerv1.Plugin{ours}},
		"by extension point": {plugins: &schedulerv1.Plugins{Reserve: set(ours)}, want: []schedulerv1.Plugin{ours}},
		"before another":     {plugins: &schedulerv1.Plugins{MultiPoint: set(ours), Bind: set(other)}, want: []schedulerv1.Plugin{ours, other}},
		"already listed":     {plugins: &schedulerv1.Plugins{MultiPoint: set(ours), Bind: set(other, ours)}, want: []schedulerv1.Plugin{other, ours}},
		"disabled":           {plugins: &schedulerv1.Plugins{MultiPoint: set(ours), Bind: schedulerv1.PluginSet{Disabled: []schedulerv1.Plugin{ours}}}},
	} {
		t.Run(name, func(t *testing.T) {
			config := &schedulerv1.KubeSchedulerConfiguration{Profiles: []schedulerv1.KubeSchedulerProfile{{Plugins: c.plugins}}}
			for range 2 { // defaults may be set twice
				SetBindOrder(config)
			}

			if c.plugins != nil && !slices.Equal(c.plugins.Bind.Enabled, c.want) {
				t.Errorf("bind is %v, want %v", c.plugins.Bind.Enabled, c.want)
			}
		})
	}
}
