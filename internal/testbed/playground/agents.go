// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/playground/nodehost"
	"crane.io/crane/internal/testbed/process"
	"crane.io/crane/internal/testbed/simnode"
)

// Nodes with an agent have a fixed size, whatever the workloads need, so that scenarios can name quantities.
const (
	agentNodeCPU    = 16
	agentNodeMemory = 32 << 30
)

// agentPool is the value of the label and of the taint of nodes with an agent: only pods that tolerate it run there.
const agentPool = "agent"

// agentNodes returns n specs of nodes with an agent.
func agentNodes(n int, template simnode.NodeSpec) []simnode.NodeSpec {
	specs := make([]simnode.NodeSpec, n)
	for i := range specs {
		specs[i] = template
		specs[i].Name = fmt.Sprintf("%s-%02d", agentPool, i+1)
		specs[i].CPU = *resource.NewQuantity(agentNodeCPU, resource.DecimalSI)
		specs[i].Memory = *resource.NewQuantity(agentNodeMemory, resource.BinarySI)
		specs[i].Labels = map[string]string{"crane.io/nodepool": agentPool}
		specs[i].Taints = []corev1.Taint{{Key: "crane.io/nodepool", Value: agentPool, Effect: corev1.TaintEffectNoSchedule}}
	}

	return specs
}

// hostDir returns the root directory of the host emulated for a simulated node.
func hostDir(dir, node string) string { return filepath.Join(dir, "hosts", node) }

// addHosts emulates hosts for the nodes that have an agent; from then on cgroup limits bound the use of their
// containers.
func (p *playground) addHosts(nodes []simnode.NodeSpec) error {
	p.hosts = nodehost.New(p.source, clock.RealClock{})
	for _, node := range nodes {
		if err := p.hosts.Add(hostDir(p.dir, node.Name), node); err != nil {
			return err
		}

		p.agentNames = append(p.agentNames, node.Name)
	}

	return nil
}

// startAgents starts a crane-agent for each node that has a host, with the RBAC rules of config/.
func (p *playground) startAgents(ctx context.Context) error {
	objects, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		return err
	}

	policy, err := writePolicy(p.dir, objects)
	if err != nil {
		return err
	}

	p.agents = map[string]*process.Process{}
	p.onStop(p.stopAgents)

	kubeconfig := ""
	for _, node := range p.agentNames {
		d, err := findDaemonSet(objects, componentCraneAgent, node)
		if err != nil {
			return err
		}

		if kubeconfig == "" { // all agents share one service account
			if kubeconfig, err = kubeconfigOf(ctx, p.control, d); err != nil {
				return err
			}
		}

		addresses, err := p.freeAddresses(ctx, 1)
		if err != nil {
			return err
		}

		flags := map[string]string{
			"kubeconfig": kubeconfig, "host-root": hostDir(p.dir, node), "bind-address": addresses[0],
			"state-dir": filepath.Join(p.dir, "agents", node), "policy-config-path": policy,
			"metrics-secure": "false", // loopback only; readable by a browser
			"start-spread":   "0s",
		}

		maps.Copy(flags, p.options.scenario.Agent)
		spec := process.Spec{
			Name:    d.name + "/" + node,
			Path:    filepath.Join(p.options.BinDir, d.name),
			Args:    d.argsWith(flags),
			Env:     d.env,
			LogFile: filepath.Join(p.dir, "logs", d.name+"-"+node+".log"),
			Restart: process.Always,
			OnExit:  p.reportExit,
		}

		if p.agents[spec.Name], err = process.Start(spec); err != nil {
			return err
		}

		p.addScrapeTarget(componentCraneAgent, "http://"+addresses[0]+"/metrics")
		p.console.progressf("crane-agent runs on %s; http://%s/metrics", node, addresses[0])
	}

	return nil
}

func (p *playground) stopAgents(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(p.agents)) {
		if err := p.agents[name].Stop(ctx); err != nil {
			return fmt.Errorf("stopping %s: %w", name, err)
		}
	}

	return nil
}
