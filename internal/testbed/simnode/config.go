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

// Types of package kubelet that users of simnode need.
type (
	// Load computes the use of containers; see kubelet.Load.
	Load = kubelet.Load
	// Use is the use of one container; see kubelet.Use.
	Use = kubelet.Use
	// NodeSpec describes a node; see kubelet.NodeSpec.
	NodeSpec = kubelet.NodeSpec
	// NodeState is the state of a node; see kubelet.NodeState.
	NodeState = kubelet.NodeState
	// ContainerState is a running container; see kubelet.ContainerState.
	ContainerState = kubelet.ContainerState
	// Timing contains the durations of the model; see kubelet.Timing.
	Timing = kubelet.Timing
)

// DefaultTiming is kubelet.DefaultTiming.
func DefaultTiming() Timing { return kubelet.DefaultTiming() }

// Defaults of Config.
const (
	// DefaultSample is the interval between samples of all containers. A kubelet's housekeeping interval is 10 s; half
	// of it makes kills in scenarios visible sooner.
	DefaultSample = 5 * time.Second
	// DefaultHeartbeat is a quarter of the node lease duration of 40 s, as in the kubelet.
	DefaultHeartbeat = 10 * time.Second
	// DefaultWorkers bounds the concurrent calls to the API server for pods.
	DefaultWorkers = 8
)

// statusReport is the longest time between two reports of a node's status (kubelet: nodeStatusReportFrequency).
const statusReport = 5 * time.Minute

// MaxNodes is the number of nodes for which there are pod addresses.
const MaxNodes = 4096

// Config configures a Fleet.
type Config struct {
	// Client is the client configuration; its rate limits are replaced by Workers.
	Client *rest.Config
	// Nodes are the nodes to simulate, with distinct names.
	Nodes []NodeSpec
	// Load computes the use of the containers.
	Load Load
	// Timing is the timing of the model; the zero value means DefaultTiming.
	Timing Timing
	// Sample is the time between two samples of all containers; 0 means DefaultSample.
	Sample time.Duration
	// Heartbeat is the time between two renewals of a node's lease; 0 means DefaultHeartbeat.
	Heartbeat time.Duration
	// Workers bounds the concurrent calls for pods; 0 means DefaultWorkers.
	Workers int
	// Serving configures the endpoints of the kubelets and metrics.k8s.io; nil disables them.
	Serving *Serving
	// Clock is the clock of the simulation; nil means the real one.
	Clock clock.WithTicker
	// Log receives progress and errors; the zero value discards them.
	Log logr.Logger
}

// Serving configures the identities of the HTTPS endpoints.
type Serving struct {
	// Cert issues a serving certificate for the hosts, signed by CA.
	Cert func(hosts ...string) (tls.Certificate, error)
	// CA is the PEM-encoded CA that signs serving certificates, for the APIService.
	CA []byte
	// ClientCA verifies client certificates, including that of the API server.
	ClientCA *x509.CertPool
	// FrontProxyCA and FrontProxyNames identify the API server's front proxy.
	FrontProxyCA    *x509.CertPool
	FrontProxyNames []string
	// Metrics registers metrics.k8s.io as an aggregated API.
	Metrics bool
	// Tunnel provides addresses through which the API server proxies to the nodes (nodes/NAME/proxy), which it refuses
	// to do for loopback addresses. Its flags must be passed to the API server. Nil disables this path.
	Tunnel *tunnel.Tunnel
}

func (s *Serving) complete() bool { return s.Cert != nil && s.ClientCA != nil && len(s.CA) > 0 }

// complete sets defaults and validates the configuration.
func (c Config) complete() (Config, error) {
	if c.Client == nil {
		return c, errors.New("simulated nodes: no client configuration")
	}

	if c.Load == nil {
		return c, errors.New("simulated nodes: no load")
	}

	// Everything else has a default.
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
			errs = append(errs, fmt.Errorf("duplicate node %s", n.Name))
		}

		seen[n.Name] = true
	}

	// Every problem is reported at once.
	if c.Serving != nil && !c.Serving.complete() {
		errs = append(errs, errors.New("serving: Cert, CA and ClientCA are required"))
	}

	if len(errs) > 0 {
		return fmt.Errorf("simulated nodes: %w", errors.Join(errs...))
	}

	return nil
}
