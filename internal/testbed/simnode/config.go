// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/testbed/simnode/kubelet"
	"crane.io/crane/internal/testbed/simnode/tunnel"
)

// The vocabulary of package kubelet that users of simnode need.
type (
	// Load says what containers use; see kubelet.Load.
	Load = kubelet.Load
	// Use is what one container uses; see kubelet.Use.
	Use = kubelet.Use
	// NodeSpec describes a node; see kubelet.NodeSpec.
	NodeSpec = kubelet.NodeSpec
	// NodeState is a node as it stands; see kubelet.NodeState.
	NodeState = kubelet.NodeState
	// ContainerState is a running container; see kubelet.ContainerState.
	ContainerState = kubelet.ContainerState
	// Timing holds the durations of the model; see kubelet.Timing.
	Timing = kubelet.Timing
)

// DefaultTiming is kubelet.DefaultTiming.
func DefaultTiming() Timing { return kubelet.DefaultTiming() }

// The defaults of Config.
const (
	// DefaultSample is between two samples of all containers: a kubelet's housekeeping takes 10 s, half of which lets a
	// scenario's kills be seen soon.
	DefaultSample = 5 * time.Second
	// DefaultHeartbeat is a quarter of the 40 s that a node lease lasts, as the kubelet has it.
	DefaultHeartbeat = 10 * time.Second
	// DefaultWorkers bounds the concurrent calls to the API server for pods.
	DefaultWorkers = 8
)

// statusReport is the longest time between two reports of a node's status (kubelet: nodeStatusReportFrequency).
const statusReport = 5 * time.Minute

// MaxNodes is what the plan of pod addresses has room for.
const MaxNodes = 4096

// Config says what to simulate and with which identities.
type Config struct {
	// Client reaches the API server; its rate limits are replaced by the bound on workers.
	Client *rest.Config
	// Nodes to run, with different names.
	Nodes []NodeSpec
	// Load of the containers.
	Load Load
	// Timing of the model; the zero value means DefaultTiming.
	Timing Timing
	// Sample is the time between two samples of all containers; 0 means DefaultSample.
	Sample time.Duration
	// Heartbeat is the time between two renewals of a node's lease; 0 means DefaultHeartbeat.
	Heartbeat time.Duration
	// Workers bounds the concurrent calls for pods; 0 means DefaultWorkers.
	Workers int
	// Serving of the kubelets' endpoints and of metrics.k8s.io; nil means that nothing is served.
	Serving *Serving
	// Clock is the time of the simulation; nil means the real one.
	Clock clock.WithTicker
	// Log receives what a person may want to know; the zero value discards.
	Log logr.Logger
}

// Serving holds the identities of the HTTPS endpoints.
type Serving struct {
	// Cert issues a serving certificate for the hosts, signed by CA.
	Cert func(hosts ...string) (tls.Certificate, error)
	// CA is the PEM of the authority that signs serving certificates; the API service carries it.
	CA []byte
	// ClientCA verifies the certificates of users, the API server's kubelet client among them.
	ClientCA *x509.CertPool
	// FrontProxyCA and FrontProxyNames tell the API server's proxy.
	FrontProxyCA    *x509.CertPool
	FrontProxyNames []string
	// Metrics registers metrics.k8s.io as an aggregated API.
	Metrics bool
	// Tunnel gives the nodes addresses through which the API server proxies to them (nodes/NAME/proxy), which it does
	// not to loopback. It must be among the API server's flags. Nil means that this one path does not work.
	Tunnel *tunnel.Tunnel
}

func (s *Serving) complete() bool { return s.Cert != nil && s.ClientCA != nil && len(s.CA) > 0 }

// complete fills in defaults and refuses what cannot work.
func (c Config) complete() (Config, error) {
	if c.Client == nil {
		return c, errors.New("simulated nodes: no client configuration")
	}
	if c.Load == nil {
		return c, errors.New("simulated nodes: no load")
	}
	if c.Timing == (Timing{}) {
		c.Timing = DefaultTiming()
	}
	if c.Sample == 0 {
		c.Sample = DefaultSample
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = DefaultHeartbeat
	}
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log.GetSink() == nil {
		c.Log = logr.Discard()
	}
	return c, c.validate()
}

func (c Config) validate() error {
	var errs []error
	if err := c.Timing.Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.Sample < 0 || c.Heartbeat < 0 || c.Workers < 0 {
		errs = append(errs, fmt.Errorf("sample %v, heartbeat %v and workers %d must be positive", c.Sample, c.Heartbeat, c.Workers))
	}
	if len(c.Nodes) == 0 || len(c.Nodes) > MaxNodes {
		errs = append(errs, fmt.Errorf("%d nodes, want 1 to %d", len(c.Nodes), MaxNodes))
	}
	seen := map[string]bool{}
	for _, n := range c.Nodes {
		if err := n.Validate(); err != nil {
			errs = append(errs, err)
		}
		if seen[n.Name] {
			errs = append(errs, fmt.Errorf("node %s is there twice", n.Name))
		}
		seen[n.Name] = true
	}
	if c.Serving != nil && !c.Serving.complete() {
		errs = append(errs, errors.New("serving: a certificate, the CA's PEM and the client CA are all needed"))
	}
	if len(errs) > 0 {
		return fmt.Errorf("simulated nodes: %w", errors.Join(errs...))
	}
	return nil
}
