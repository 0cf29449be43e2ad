// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"k8s.io/client-go/rest"

	"crane.io/crane/internal/testbed/promserver"
)

const (
	// scrapeTimeout and scrapeBytes bound the scrape of one component.
	scrapeTimeout = 5 * time.Second
	scrapeBytes   = 64 << 20
)

// scrapeTarget is a component of Crane that Prometheus scrapes.
type scrapeTarget struct{ job, url string }

// scraper reads the metrics of Crane's components, as the ServiceMonitors of the chart do.
type scraper struct {
	client *http.Client
	now    func() time.Time
}

// newScraper returns a scraper that authenticates with the client certificate of a configuration.
func newScraper(config *rest.Config) (*scraper, error) {
	certificate, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		return nil, fmt.Errorf("loading the administrator's certificate: %w", err)
	}

	transport := &http.Transport{TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, // Components on loopback sign their own certificates.
	}}

	return &scraper{client: &http.Client{Transport: transport, Timeout: scrapeTimeout}, now: time.Now}, nil
}

// scrapeTargets are the components to scrape.
type scrapeTargets struct {
	mu   sync.Mutex
	list []scrapeTarget
}

// addScrapeTarget registers a component.
func (t *scrapeTargets) addScrapeTarget(job, url string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.list = append(t.list, scrapeTarget{job: job, url: url})
}

// registered returns the components that are registered so far.
func (t *scrapeTargets) registered() []scrapeTarget {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.list
}

// run stores the metrics of each registered component at an interval until ctx ends.
func (s *scraper) run(ctx context.Context, interval time.Duration, targets *scrapeTargets, server *promserver.Server, c *console) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()

	for {
		for _, target := range targets.registered() {
			at := s.now()
			batch := s.scrape(ctx, target)
			if err := server.Append(ctx, target.url, at, batch); err != nil && ctx.Err() == nil {
				c.progressf("scraping %s: %v", target.job, err)
			}
		}

		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// scrape returns the samples of a target and its series up.
func (s *scraper) scrape(ctx context.Context, target scrapeTarget) []promserver.Sample {
	body, err := s.get(ctx, target.url)
	var batch []promserver.Sample
	if err == nil {
		batch, err = parseMetrics(body, target)
	}

	health := 1.0

	// A failed scrape stores nothing but up 0, like Prometheus.
	if err != nil {
		batch = nil
		health = 0
	}

	return append(batch, promserver.Sample{Labels: labels.FromStrings("__name__", "up", "job", target.job, "instance", target.url), Value: health})
}

func (s *scraper) get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}

	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading %s: status %s", url, response.Status)
	}

	return io.ReadAll(io.LimitReader(response.Body, scrapeBytes))
}

// parseMetrics returns the samples of a page of metrics with the labels job and instance.
func parseMetrics(page []byte, target scrapeTarget) ([]promserver.Sample, error) {
	parser := textparse.NewPromParser(page, labels.NewSymbolTable(), false)
	var batch []promserver.Sample
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return batch, nil
		}
		if err != nil {
			return nil, fmt.Errorf("parsing the metrics of %s: %w", target.job, err)
		}

		// Help, types and comments carry no sample.
		if entry != textparse.EntrySeries {
			continue
		}

		_, _, value := parser.Series()
		var series labels.Labels
		parser.Labels(&series)
		builder := labels.NewBuilder(series)
		builder.Set("job", target.job).Set("instance", target.url)
		batch = append(batch, promserver.Sample{Labels: builder.Labels(), Value: value})
	}
}
