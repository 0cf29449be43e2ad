// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package realnode joins real nodes to a control plane on this machine: each runs a real kubelet, containerd or CRI-O,
// and runc on a real kernel, without Docker and without a registry. It combines package sandbox (namespaces), bridge
// (network), namespacenode and microvm (the two kinds of node) and assets (their files).
package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/process"
	"crane.io/crane/internal/testbed/realnode/assets"
	"crane.io/crane/internal/testbed/realnode/bridge"
	"crane.io/crane/internal/testbed/realnode/doctor"
	"crane.io/crane/internal/testbed/realnode/hostcgroup"
	"crane.io/crane/internal/testbed/realnode/nodespec"
	"crane.io/crane/internal/testbed/realnode/sandbox"
	"crane.io/crane/internal/testbed/realnode/testprogram"
)

// servicePort is the port of service default/kubernetes.
const servicePort = "443"

// pollInterval is the interval between reads of a node's state.
const pollInterval = 50 * time.Millisecond

// Cluster is a control plane that real nodes can join. Its methods may be called from any goroutine.
type Cluster struct {
	session    *sandbox.Session
	control    *controlplane.ControlPlane
	client     kubernetes.Interface
	assets     assets.Set
	host       hostcgroup.Host
	images     string // archive
	containerd string // configuration
	log        io.Writer
	service    net.Listener

	mu       sync.Mutex
	nodes    map[int]*Node
	services bool             // EnableServices has succeeded
	gateway  net.Listener     // nil without services
	dns      *process.Process // nil without services
}

// Open prepares the network inside of session for nodes that join control. Progress is written to log; nil discards it.
func Open(ctx context.Context, session *sandbox.Session, control *controlplane.ControlPlane, set assets.Set, log io.Writer) (*Cluster, error) {
	if log == nil {
		log = io.Discard
	}

	c := &Cluster{
		session: session,
		control: control,
		assets:  set,
		log:     log,
		nodes:   map[int]*Node{},
	}

	var err error
	if c.client, err = kubernetes.NewForConfig(control.Config()); err != nil {
		return nil, fmt.Errorf("creating the client of the control plane: %w", err)
	}

	if c.host, err = hostcgroup.Detect(); err != nil {
		return nil, err
	}

	if c.images, err = linkImages(session, set); err != nil {
		return nil, err
	}

	if c.containerd, err = containerdConfiguration(ctx); err != nil {
		return nil, err
	}

	service, err := netip.ParseAddr(controlplane.ServiceIP)
	if err != nil {
		return nil, fmt.Errorf("parsing the address of the API server: %w", err)
	}

	if err := bridge.Open(ctx, service); err != nil {
		return nil, err
	}

	// Kubelets and pods reach the API server at the ClusterIP of service default/kubernetes.
	var config net.ListenConfig
	if c.service, err = config.Listen(ctx, "tcp4", net.JoinHostPort(controlplane.ServiceIP, servicePort)); err != nil {
		return nil, fmt.Errorf("serving the API server to nodes: %w", err)
	}

	go sandbox.Serve(c.service, net.JoinHostPort("127.0.0.1", strconv.Itoa(control.Port())))
	return c, nil
}

// linkImages links the archive of images into the session: another session with newer binaries removes the cached one.
func linkImages(session *sandbox.Session, set assets.Set) (string, error) {
	cached, err := set.Images(testprogram.Names())
	if err != nil {
		return "", err
	}

	link := filepath.Join(session.Dir, "images.tar")
	if err := os.Link(cached, link); err == nil || errors.Is(err, os.ErrExist) {
		return link, nil
	}

	// The session is on another file system.
	content, err := os.ReadFile(cached)
	if err == nil {
		err = os.WriteFile(link, content, 0o600)
	}

	if err != nil {
		return "", fmt.Errorf("copying the images: %w", err)
	}

	return link, nil
}

// HostVersion returns the cgroup version of namespace nodes on a host.
func HostVersion(h hostcgroup.Host) int {
	if len(h.V1) > 0 {
		return 1
	}

	return 2
}

// CheckSupport returns an error if this machine cannot run a node with these options.
func (c *Cluster) CheckSupport(ctx context.Context, o NodeOptions) error {
	o, err := o.complete(1, HostVersion(c.host))
	if err != nil {
		return err
	}

	if o.crio() {
		if err := c.assets.HasCRIO(); err != nil {
			return err
		}
	}

	if !o.Machine {
		return nil
	}

	if c.services {
		return errors.New("nodes in virtual machines have no kube-proxy")
	}

	// Virtual machines need an emulator, a kernel and, for its driver, systemd.
	err = errors.Join(doctor.Problems(doctor.CheckMachine(ctx)), c.assets.HasKernel())
	if o.systemd() {
		err = errors.Join(err, c.assets.HasSystemd())
	}

	return err
}

// StartNodes starts nodes concurrently and returns when all are Ready. After an error none of them is left.
func (c *Cluster) StartNodes(ctx context.Context, options ...NodeOptions) ([]*Node, error) {
	nodes, err := c.reserve(options)
	if err != nil {
		return nil, err
	}

	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { errs[i] = n.start(ctx) })
	}

	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		for _, n := range nodes {
			err = errors.Join(err, n.Stop(context.WithoutCancel(ctx)))
		}

		return nil, err
	}

	return nodes, nil
}

// reserve assigns each node a number.
func (c *Cluster) reserve(options []NodeOptions) ([]*Node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	var all []NodeOptions
	for _, n := range c.nodes {
		all = append(all, n.options)
	}

	var nodes []*Node
	number := 0
	for _, o := range options {
		// The lowest free numbers determine addresses and default names.
		for number++; c.nodes[number] != nil; number++ {
		}

		o, err := o.complete(number, HostVersion(c.host))
		if err != nil {
			return nil, err
		}

		all = append(all, o)
		nodes = append(nodes, &Node{cluster: c, number: number, options: o})
	}

	if err := checkNames(all); err != nil {
		return nil, err
	}

	for _, n := range nodes {
		c.nodes[n.number] = n
	}

	return nodes, nil
}

// Close stops all nodes. The network is removed with the session.
func (c *Cluster) Close(ctx context.Context) error {
	c.mu.Lock()
	nodes := make([]*Node, 0, len(c.nodes))
	for _, n := range c.nodes {
		nodes = append(nodes, n)
	}

	c.mu.Unlock()
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { errs[i] = n.Stop(ctx) })
	}

	wg.Wait()
	return errors.Join(append(errs, c.closeServices(ctx), c.service.Close())...)
}

// Client returns a client with administrator rights.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Control returns the control plane.
func (c *Cluster) Control() *controlplane.ControlPlane { return c.control }

// logDir returns the directory of a node's logs.
func (c *Cluster) logDir(name string) string { return filepath.Join(c.session.Dir, "nodes", name) }

func (c *Cluster) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(c.log, "nodes: "+format+"\n", args...)
}

// awaitReady waits until the node is Ready. It returns an error if the node ends first.
func (c *Cluster) awaitReady(ctx context.Context, name string, ended <-chan struct{}) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()

	reason := "it has not registered"
	for {
		node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			var ready bool
			if ready, reason = isReady(node); ready {
				return nil
			}
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s is not Ready: %s: %w", name, reason, context.Cause(ctx))
		case <-ended:
			return fmt.Errorf("node %s ended before it was Ready: %s", name, reason)
		case <-ticker.C:
		}
	}
}

func isReady(node *corev1.Node) (bool, string) {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue, condition.Message
		}
	}

	return false, "it has no condition Ready"
}

// report returns a function that logs the steps of a node.
func (c *Cluster) report(name string) func(nodespec.Report) {
	return func(r nodespec.Report) {
		if r.Error == "" {
			c.logf("%s: %s after %s", name, r.Step, r.Took.Round(time.Millisecond))
		}
	}
}
