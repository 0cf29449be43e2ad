// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/testbed/realnode"
	"crane.io/crane/internal/testbed/realnode/assets"
	"crane.io/crane/internal/testbed/realnode/bridge"
	"crane.io/crane/internal/testbed/realnode/doctor"
	"crane.io/crane/internal/testbed/realnode/sandbox"
)

// realTaint keeps the generated workloads off real nodes, which cannot pull their images.
const realTaint = "crane.io/real-node"

// maxRealNodes bounds the load on a machine that runs a playground as well.
const maxRealNodes = 3

// Ports of this machine that are forwarded to a playground in namespaces of its own.
const (
	portAPIServer = iota
	portPrometheus
	portCraned
	ports
)

// Enter runs the playground in this process or, with real nodes, in a second process in namespaces of its own (see
// package sandbox). It returns the exit status.
func Enter(ctx context.Context, o *Options, run func(*Options) error) (int, error) {
	if o.RealNodes == 0 {
		return 0, run(o)
	}

	// Problems of the machine are reported before the second process starts.
	if !sandbox.Inside() {
		if err := doctor.Problems(doctor.CheckNamespaces(ctx)); err != nil {
			return 1, fmt.Errorf("--real-nodes: this machine cannot run real nodes:\n%w", err)
		}
	}

	set, err := assets.FromDir(o.BinDir)
	if err != nil {
		return 1, fmt.Errorf("--real-nodes: %w", err)
	}

	// The sandbox returns a status only; the error itself stays in this process.
	var failure error
	status, err := sandbox.Enter(sandbox.Options{Kit: set.Kit, Ports: ports}, func(s *sandbox.Session) int {
		o.session = s
		if failure = run(o); failure != nil {
			return 1
		}

		return 0
	})

	if err == nil {
		err = failure
	}

	return status, err
}

// port returns the forwarded port of this machine, or 0 (any free port) outside of namespaces.
func (o *Options) port(which int) int {
	if o.session == nil {
		return 0
	}

	return o.session.Ports[which]
}

// startRealNodes joins real nodes to the cluster, for pods that tolerate their taint.
func (p *playground) startRealNodes(ctx context.Context) error {
	set, err := assets.FromDir(p.options.BinDir)
	if err != nil {
		return err
	}

	// The nodes have a network of their own, to which the control plane on loopback is relayed.
	s := p.options.session
	s.Relay("127.0.0.1")

	cluster, err := realnode.Open(ctx, s, p.control, set, nil)
	if err != nil {
		return err
	}

	p.onStop(cluster.Close)

	// A taint keeps the generated workloads off real nodes.
	wanted := make([]realnode.NodeOptions, p.options.RealNodes)
	for i := range wanted {
		wanted[i].Name = fmt.Sprintf("real-%d", i+1)
		wanted[i].Taints = []corev1.Taint{{Key: realTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	}

	if _, err := cluster.StartNodes(ctx, wanted...); err != nil {
		return err
	}

	p.console.progressf("%d real nodes are Ready; pods that tolerate the taint %s may run there (docs/how-to/use-real-nodes.md)", len(wanted), realTaint)
	return nil
}

// stateDir returns the default state directory inside of namespaces, which is removed with them; empty outside.
func (o *Options) stateDir() string {
	if o.session == nil {
		return ""
	}

	return filepath.Join(o.session.Dir, "playground")
}

// directNetworks returns the networks of nodes that the API server reaches directly, not through the tunnel to the
// simulated ones.
func (o *Options) directNetworks() []string {
	if o.RealNodes == 0 {
		return nil
	}

	return []string{bridge.Address(1).Masked().String()}
}
