// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"fmt"
)

// generateNodes creates nodes on which gocrane's agent and its scheduler's controller left their marks.
func (f *fixture) generateNodes(s size) {
	var nodes, zones []*object
	for i := range s.nodes {
		name := fmt.Sprintf("node-%d", i)
		resources := map[string]any{"cpu": "16", "memory": "32Gi", "pods": "110", "gocrane.io/cpu": "6", "gocrane.io/memory": "8Gi"}
		o := namespaced("v1", "Node", "", name, map[string]any{
			"spec": map[string]any{"taints": []any{map[string]any{"key": "team", "value": "a", "effect": "NoSchedule"}, map[string]any{"key": "interference.crane.io", "effect": "PreferNoSchedule"}}},
			"status": map[string]any{"capacity": resources, "allocatable": deepCopy(resources), "conditions": []any{
				map[string]any{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": nil, "lastTransitionTime": nil},
				map[string]any{"type": "interference-identified", "status": "True", "lastHeartbeatTime": nil, "lastTransitionTime": nil},
			}},
		})

		annotate(o, "cpu_usage_avg_5m", "0.63012,2024-05-01T15:04:32Z", "cpu_usage_max_avg_1h", "0.70000,2024-05-01T15:04:32Z", "mem_usage_avg_5m", "0.40000,2024-05-01T15:04:32Z",
			"node_hot_value", "0,2024-05-01T15:04:32Z", "example.com/owner", "team-a")

		if i == 0 {
			annotate(o, "reserve.node.gocrane.io/cpu", "40%")
			o.SetLabels(map[string]string{"topology.crane.io/topology-awareness": "true", "pool": "a"})
		}

		nodes = append(nodes, o)
		zones = append(zones, namespaced("topology.crane.io/v1alpha1", "NodeResourceTopology", "", name, map[string]any{
			"craneManagerPolicy": map[string]any{"cpuManagerPolicy": "Static", "topologyManagerPolicy": "SingleNUMANodePodLevel"},
			"zones":              []any{map[string]any{"name": "node0", "type": "Node", "resources": map[string]any{"capacity": map[string]any{"cpu": "16"}}}},
		}))
	}

	f.create("kubelet", true, nodes...)
	f.create("crane-agent", true, zones...)
	f.create("crane-agent", true, prediction(appNamespace(0), "noderesource-node-0", nil))
}

// generateUse creates what uses gocrane, and what its processes made in their namespace.
func (f *fixture) generateUse(namespace string) {
	lease := func(name string) *object {
		return namespaced("coordination.k8s.io/v1", "Lease", namespace, name, map[string]any{"spec": map[string]any{"holderIdentity": name + "-0", "leaseDurationSeconds": int64(15)}})
	}
	secret := namespaced("v1", "Secret", namespace, "clusters-secret-store", map[string]any{"data": map[string]any{"cls-1": "e30="}})
	secret.SetLabels(map[string]string{"crane-store": "true"})
	f.create("craned", true, lease("craned"), lease("crane-scheduler-controller"), secret,
		namespaced("v1", "ConfigMap", namespace, "oom-record", map[string]any{"data": map[string]any{"data": `[{"Namespace":"app-0","Pod":"web-0-x","Container":"main","Memory":"512Mi","OOMAt":"2024-05-01T00:00:00Z"}]`}}))

	// Of others, which an inventory leaves out and a migration leaves alone.
	account := namespaced("v1", "ServiceAccount", appNamespace(0), "default", nil)
	f.create("kubectl", false, account)

	pod := func(name, scheduler string, requests map[string]any, annotations ...string) *object {
		o := namespaced("v1", "Pod", appNamespace(0), name, map[string]any{"spec": map[string]any{"schedulerName": scheduler, "nodeName": "node-0", "containers": []any{map[string]any{
			"name": "main", "image": "i", "resources": map[string]any{"requests": requests, "limits": requests},
		}}}})
		annotate(o, annotations...)

		return o
	}

	f.create("kubectl", false,
		pod("placed", "crane-scheduler", map[string]any{"cpu": "1"}, "topology.crane.io/topology-result", `[{"name":"node0","type":"Node","resources":{"capacity":{"cpu":"1"}}}]`),
		pod("elastic", "default-scheduler", map[string]any{"gocrane.io/cpu": "2"}),
		namespaced("v1", "ConfigMap", appNamespace(0), "prometheus-rules", map[string]any{"data": map[string]any{"rules.yaml": "groups:\n- name: g\n  rules:\n  - record: cpu_usage_avg_5m\n    expr: avg_over_time(cpu_usage_active[5m])\n"}}),
	)
}
