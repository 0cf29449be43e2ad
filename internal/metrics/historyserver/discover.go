// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package historyserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"crane.io/crane/internal/component/usererror"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/discover"
	"crane.io/crane/internal/metrics/prometheus"
)

// Limits of probing one service, so that an unavailable one does not delay the others.
const (
	findTimeout  = 20 * time.Second
	findAttempts = 2
)

// DiscoveredServer is a Prometheus server discovered in the cluster.
type DiscoveredServer struct {
	service   discover.Candidate
	address   string
	transport http.RoundTripper
}

// RejectedService is a service that was probed and rejected.
type RejectedService struct {
	Service discover.Candidate
	Reason  string
}

// NotFoundError is returned if no service is a usable Prometheus server.
type NotFoundError struct {
	host     string
	Rejected []RejectedService
	// Unproven are the services outside namespaces for monitoring, and why they are not used; empty without any.
	Unproven string
}

func (e *NotFoundError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no Prometheus found in the cluster at %s", e.host)

	if len(e.Rejected) == 0 && e.Unproven == "" {
		fmt.Fprintf(&b, ": no service has the labels or the name of %s", strings.Join(discover.ServerNames(), ", "))
	}

	for _, a := range e.Rejected {
		fmt.Fprintf(&b, "; %s: %s", a.Service, a.Reason)
	}

	if e.Unproven != "" {
		b.WriteString("; " + e.Unproven)
	}

	b.WriteString(". " + ConfigureServerHint)
	return b.String()
}

// PublicMessage implements metrics.PublicError: services and the address of the API server are for those who may list them.
func (e *NotFoundError) PublicMessage() string { return "no Prometheus was found in the cluster" }

// ConfigureServerHint is the end of messages: how to name the server.
const ConfigureServerHint = "Set --prometheus URL (or $" + EnvAddress + "), or --prometheus-service NAMESPACE/NAME[:PORT][/PATH], which is reached through the API server"

// Discover finds Prometheus through the kubeconfig if no address is set. It prints the selected service.
func (s *Server) Discover(ctx context.Context, k *clusteraccess.Access, note func(string)) error {
	if s.Address != "" || s.Discovered != nil {
		return nil
	}

	config, err := k.Config()
	if errors.Is(err, clusteraccess.ErrNoKubeconfig) {
		return usererror.Invalid(fmt.Errorf("the address of Prometheus is not set and cannot be discovered: %w. %s", err, ConfigureServerHint))
	}
	if err != nil {
		return err
	}

	err = s.discoverIn(ctx, config, note)
	var public metrics.PublicError
	if err == nil || errors.As(err, &public) {
		return err
	}

	return metrics.WithPublicMessage(err, "the Prometheus of the cluster cannot be discovered")
}

// discoverIn finds Prometheus in the cluster of a configuration.
func (s *Server) discoverIn(ctx context.Context, config *rest.Config, note func(string)) error {
	finder, err := discover.NewFinder(config)
	if err != nil {
		return err
	}

	// A service that the user names is used without looking at the others.
	if s.Service != "" {
		choice, err := discover.ParseServiceAddress(s.Service)
		if err != nil {
			return usererror.Invalid(fmt.Errorf("--prometheus-service: %w", err))
		}

		c, err := finder.Resolve(ctx, choice)
		if err != nil {
			return fmt.Errorf("--prometheus-service: %w", err)
		}

		s.useCandidate(finder, c)
		return nil
	}

	candidates, err := finder.Find(ctx)
	if err != nil {
		return fmt.Errorf("API server %s: %w. %s", config.Host, err, ConfigureServerHint)
	}

	unproven := describeUnproven(candidates)
	if len(candidates.Proven) == 0 {
		return &NotFoundError{host: config.Host, Unproven: unproven}
	}

	err = s.checkProven(candidates.Proven)
	if err != nil {
		return fmt.Errorf("selecting the Prometheus of the cluster at %s: %w. %s", config.Host, err, ConfigureServerHint)
	}

	if unproven != "" {
		note("Not used: " + unproven)
	}

	return s.selectCandidate(ctx, config.Host, finder, candidates.Proven, note)
}

// describeUnproven returns the services outside namespaces for monitoring, and why they are not used; empty without any.
func describeUnproven(candidates discover.Candidates) string {
	switch names := listCandidates(candidates.Unproven); {
	case len(candidates.Unproven) == 0:
		return ""
	case candidates.Unknown != nil:
		return names + ", which may be of users of these namespaces: whether they are for monitoring is not known without the right to list clusterroles and clusterrolebindings: " + candidates.Unknown.Error()
	default:
		return names + ", which may be of users of these namespaces: no ClusterRoleBinding lets a ServiceAccount there read the metrics of nodes"
	}
}

// checkProven returns an error if the user has to choose one of the services.
func (s *Server) checkProven(candidates []discover.Candidate) error {
	// A token in a header is for the server that the user thinks of.
	if len(s.Headers) > 0 {
		return fmt.Errorf("--prometheus-header is not sent to a server that was discovered (%s)", listCandidates(candidates))
	}

	// Those of one namespace have one owner.
	for _, c := range candidates {
		if c.Namespace != candidates[0].Namespace {
			return fmt.Errorf("several namespaces have one: %s", listCandidates(candidates))
		}
	}

	return nil
}

// selectCandidate selects the first candidate that responds and has the required metrics.
func (s *Server) selectCandidate(ctx context.Context, host string, finder *discover.Finder, candidates []discover.Candidate, note func(string)) error {
	var attempts []RejectedService
	for i, c := range candidates {
		s.useCandidate(finder, c)
		reason, err := s.rejectReason(ctx)
		if err != nil {
			return err
		}

		if reason != "" {
			attempts = append(attempts, RejectedService{c, reason})
			continue
		}

		// Rejected services are printed only once another one is used; without one they are part of the error.
		for _, a := range attempts {
			note(fmt.Sprintf("%s is not used: %s", a.Service, a.Reason))
		}

		text := fmt.Sprintf("Using %s %s, discovered through the API server", c.Server, c)
		if rest := candidates[i+1:]; len(rest) > 0 {
			text += "; other candidates: " + listCandidates(rest)
		}

		note(text + ". Select another with --prometheus-service or --prometheus.")
		return nil
	}

	s.Discovered = nil
	return &NotFoundError{host: host, Rejected: attempts}
}

func listCandidates(candidates []discover.Candidate) string {
	const maxListed = 5
	names := make([]string, 0, maxListed+1)
	for i, c := range candidates {
		if i == maxListed {
			names = append(names, fmt.Sprintf("%d more", len(candidates)-maxListed))
			break
		}

		names = append(names, c.String())
	}

	return strings.Join(names, ", ")
}

func (s *Server) useCandidate(finder *discover.Finder, c discover.Candidate) {
	s.Discovered = &DiscoveredServer{service: c, address: finder.Address(c), transport: finder.Transport()}
}

// rejectReason probes the discovered server and returns why it is unusable, or "". Only a canceled context is an
// error.
func (s *Server) rejectReason(ctx context.Context) (reason string, err error) {
	quick := *s
	quick.Timeout = min(s.Timeout, findTimeout)

	quick.maxAttempts = findAttempts
	source, err := quick.Open()
	if err != nil {
		return "", err
	}

	report, err := source.ProbeWithoutHistory(ctx)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return s.DescribeProxyError(err), nil
	}

	for _, m := range report.Metrics {
		if m.Required && m.Series > 0 {
			return "", nil
		}
	}

	return "it responds but has no container metrics", nil
}

// DescribeProxyError adds the permission that access through the API server requires.
func (s *Server) DescribeProxyError(err error) string {
	var failure *prometheus.Error
	if errors.As(err, &failure) && failure.Kind == prometheus.Denied {
		return fmt.Sprintf("%v; access through the API server requires permission to get services/proxy in namespace %s", err, s.Discovered.service.Namespace)
	}

	return err.Error()
}

// MissingRequired returns the missing required metrics. none is set if all are missing; with CPU or memory alone
// there are recommendations for that resource.
func MissingRequired(report metrics.SourceReport) (missing []string, none bool) {
	none = true
	for _, m := range report.Metrics {
		switch {
		case !m.Required:
		case m.Series > 0:
			none = false
		default:
			missing = append(missing, fmt.Sprintf("%s (%s)", m.Metric, m.Impact))
		}
	}

	return missing, none
}
