// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/discover"
	"crane.io/crane/internal/metrics/prometheus"
)

// Limits of the look at one service: one that is not there should not hold up the next.
const (
	findTimeout  = 20 * time.Second
	findAttempts = 2
)

// found is the Prometheus that was found in the cluster.
type found struct {
	service   discover.Candidate
	address   string
	transport http.RoundTripper
}

// attempt is a service that was looked at and why it was not taken.
type attempt struct {
	service discover.Candidate
	reason  string
}

// notFoundError says what was looked for and what was there.
type notFoundError struct {
	host     string
	attempts []attempt
}

func (e *notFoundError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no Prometheus found in the cluster at %s", e.host)
	if len(e.attempts) == 0 {
		fmt.Fprintf(&b, ": no service of any namespace has the labels or the name of %s", strings.Join(discover.ServerNames(), ", "))
	}
	for _, a := range e.attempts {
		fmt.Fprintf(&b, "; %s: %s", a.service, a.reason)
	}
	b.WriteString(". " + howToSay)
	return b.String()
}

const howToSay = "Give --prometheus URL (or $" + envAddress + "), or --prometheus-service NAMESPACE/NAME[:PORT][/PATH], which is reached through the API server"

// locate finds Prometheus through the kubeconfig where no address is given. It tells note which one was chosen.
func (p *prometheusFlags) locate(ctx context.Context, k *kubernetesFlags, note func(string)) error {
	if p.address != "" {
		return nil
	}
	config, err := k.config()
	if errors.Is(err, errNoKubeconfig) {
		return usageError(fmt.Errorf("where is the history? No address of Prometheus is given and there is %w to find it with. %s", err, howToSay))
	}
	if err != nil {
		return err
	}
	finder, err := discover.NewFinder(config)
	if err != nil {
		return err
	}
	if p.service != "" {
		choice, err := discover.ParseServiceAddress(p.service)
		if err != nil {
			return usageError(fmt.Errorf("--prometheus-service: %w", err))
		}
		c, err := finder.Resolve(ctx, choice)
		if err != nil {
			return fmt.Errorf("--prometheus-service: %w", err)
		}
		p.take(finder, c)
		return nil
	}
	candidates, err := finder.Find(ctx)
	if err != nil {
		return fmt.Errorf("API server %s: %w. %s", config.Host, err, howToSay)
	}
	return p.choose(ctx, config.Host, finder, candidates, note)
}

// choose takes the first candidate that answers and holds what is needed.
func (p *prometheusFlags) choose(ctx context.Context, host string, finder *discover.Finder, candidates []discover.Candidate, note func(string)) error {
	var attempts []attempt
	for i, c := range candidates {
		p.take(finder, c)
		reason, err := p.unfit(ctx)
		if err != nil {
			return err
		}
		if reason != "" {
			attempts = append(attempts, attempt{c, reason})
			continue
		}
		for _, a := range attempts {
			note(fmt.Sprintf("%s is not used: %s", a.service, a.reason))
		}
		text := fmt.Sprintf("Using %s %s, found through the API server", c.Server, c)
		if rest := candidates[i+1:]; len(rest) > 0 {
			text += "; there are also " + list(rest)
		}
		note(text + ". Choose another with --prometheus-service or --prometheus.")
		return nil
	}
	p.found = nil
	return &notFoundError{host: host, attempts: attempts}
}

func list(candidates []discover.Candidate) string {
	const most = 5
	names := make([]string, 0, most+1)
	for i, c := range candidates {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(candidates)-most))
			break
		}
		names = append(names, c.String())
	}
	return strings.Join(names, ", ")
}

func (p *prometheusFlags) take(finder *discover.Finder, c discover.Candidate) {
	p.found = &found{service: c, address: finder.Address(c), transport: finder.Transport()}
}

// unfit says why what was found cannot be used, empty where it can. Only the end of the context is an error.
func (p *prometheusFlags) unfit(ctx context.Context) (reason string, err error) {
	quick := *p
	quick.timeout, quick.attempts = min(p.timeout, findTimeout), findAttempts
	source, err := quick.open()
	if err != nil {
		return "", err
	}
	report, err := source.ProbeWithoutHistory(ctx)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return p.throughProxy(err), nil
	}
	for _, m := range report.Metrics {
		if m.Required && m.Series > 0 {
			return "", nil
		}
	}
	return "it answers and has no metrics of containers", nil
}

// throughProxy adds what the way through the API server needs.
func (p *prometheusFlags) throughProxy(err error) string {
	var failure *prometheus.Error
	if errors.As(err, &failure) && failure.Kind == prometheus.Denied {
		return fmt.Sprintf("%v; the way through the API server needs the right to get services/proxy in namespace %s", err, p.found.service.Namespace)
	}
	return err.Error()
}

// lacks names the required metrics that are missing. none tells that all of them are: with one of CPU and memory there
// are still recommendations for the other.
func lacks(report metrics.SourceReport) (missing []string, none bool) {
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
