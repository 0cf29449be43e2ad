// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/playground/load"
	"crane.io/crane/internal/testbed/simnode"
	"crane.io/crane/internal/testbed/simnode/tunnel"
)

// headroom is the ratio of the cluster's capacity to the sum of requests or peak use, whichever is larger. It leaves
// room for pods that do not divide evenly among nodes.
const headroom = 1.4

// Minimum size of a node.
const (
	leastNodeCPU    = 8
	leastNodeMemory = 32 << 30
)

// nodeSpecs returns n equal nodes sized so that the workloads fit, the largest pod included.
func nodeSpecs(n int, d load.Demand) []simnode.NodeSpec {
	nodes := float64(n)
	cpu := max(leastNodeCPU, headroom*d.CPU/nodes+d.NodeCPU, headroom*d.PodCPU+d.NodeCPU)
	memory := max(leastNodeMemory, headroom*d.Memory/nodes+d.NodeMemory, headroom*d.PodMemory+d.NodeMemory)
	pods := int(math.Ceil(headroom*float64(d.Pods)/nodes)) + d.PodsPerNode

	specs := make([]simnode.NodeSpec, n)
	for i := range specs {
		specs[i] = simnode.NodeSpec{
			Name:    fmt.Sprintf("node-%02d", i+1),
			CPU:     *resource.NewQuantity(int64(2*math.Ceil(cpu/2)), resource.DecimalSI),
			Memory:  *resource.NewQuantity(int64(math.Ceil(memory/(1<<30)))<<30, resource.BinarySI),
			MaxPods: min(max(pods, 110), 250),
			Labels: map[string]string{
				"topology.kubernetes.io/zone": "zone-" + string(rune('a'+i%3)),
				"crane.io/nodepool":           "pool-" + string(rune('1'+i%2)),
			},
		}
	}

	return specs
}

// spareNodes returns n more nodes of the same size with a taint that no workload tolerates: an unused node pool.
func spareNodes(n int, template simnode.NodeSpec) []simnode.NodeSpec {
	specs := make([]simnode.NodeSpec, n)
	for i := range specs {
		specs[i] = template
		specs[i].Name = fmt.Sprintf("spare-%02d", i+1)
		specs[i].Labels = map[string]string{"crane.io/nodepool": "spare"}
		specs[i].Taints = []corev1.Taint{{Key: "crane.io/nodepool", Value: "spare", Effect: corev1.TaintEffectNoSchedule}}
	}

	return specs
}

// startNodes starts the simulated kubelets and waits until they are registered and serve.
func (p *playground) startNodes(ctx context.Context, fail context.CancelCauseFunc) error {
	serving, err := newServing(p.control, p.tunnel)
	if err != nil {
		return err
	}

	specs := nodeSpecs(p.options.Nodes, load.Sum(p.workloads))
	if p.options.scenario != nil {
		specs = append(specs, spareNodes(p.options.scenario.SpareNodes, specs[0])...)
	}

	// Agents act on emulated hosts, whose cgroup limits bound the generated load.
	var use simnode.Load = p.source
	if p.options.hasAgents() {
		nodes := agentNodes(p.options.scenario.AgentNodes, specs[0])
		if err := p.addHosts(nodes); err != nil {
			return err
		}

		use = p.hosts
		specs = append(specs, nodes...)
	}

	// The API server and Prometheus need the nodes, so wait until all of them serve.
	p.fleet, err = simnode.New(simnode.Config{
		Client:  p.control.Config(),
		Nodes:   specs,
		Load:    use,
		Serving: serving,
	})
	if err != nil {
		return err
	}

	p.background.Go(func() {
		if err := p.fleet.Run(ctx); err != nil && ctx.Err() == nil {
			fail(fmt.Errorf("simulated nodes: %w", err))
		}
	})

	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.fleet.Ready():
	}

	if p.hosts != nil {
		p.background.Go(func() {
			if err := p.hosts.Run(ctx, p.fleet.Snapshot); err != nil && ctx.Err() == nil {
				fail(fmt.Errorf("hosts of agents: %w", err))
			}
		})
	}

	p.console.progressf("%d nodes of %s cores and %s are ready; metrics.k8s.io is served", len(specs), specs[0].CPU.String(), specs[0].Memory.String())
	return nil
}

// newServing returns the certificates and CAs of the kubelet endpoints and of metrics.k8s.io.
func newServing(control *controlplane.ControlPlane, through *tunnel.Tunnel) (*simnode.Serving, error) {
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(control.CAPEM()) {
		return nil, errors.New("the certificate of the cluster CA is invalid")
	}

	proxyFile, proxyNames := control.FrontProxy()
	proxyPEM, err := os.ReadFile(proxyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the front-proxy CA: %w", err)
	}

	proxies := x509.NewCertPool()
	if !proxies.AppendCertsFromPEM(proxyPEM) {
		return nil, fmt.Errorf("front-proxy CA: %s contains no certificate", proxyFile)
	}

	// Clients of the kubelets have certificates of the cluster CA; the API server calls metrics.k8s.io as the front proxy.
	return &simnode.Serving{
		Cert: func(hosts ...string) (tls.Certificate, error) {
			cert, key, err := control.IssueServing(hosts...)
			if err != nil {
				return tls.Certificate{}, fmt.Errorf("certificate for %s: %w", strings.Join(hosts, ", "), err)
			}

			return tls.X509KeyPair(cert, key)
		},
		CA:              control.CAPEM(),
		ClientCA:        clients,
		FrontProxyCA:    proxies,
		FrontProxyNames: proxyNames,
		Metrics:         true,
		Tunnel:          through,
	}, nil
}
