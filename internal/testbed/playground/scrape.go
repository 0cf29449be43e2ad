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
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

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

// newScraper returns a scraper that authenticates as the cluster's administrator.
func (p *playground) newScraper() (*scraper, error) {
	config := p.control.Config()
	certificate, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		return nil, fmt.Errorf("certificate of the administrator: %w", err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, // Components on loopback sign their own certificates.
	}}
	return &scraper{client: &http.Client{Transport: transport, Timeout: scrapeTimeout}, now: time.Now}, nil
}

// addScrapeTarget registers a component.
func (p *playground) addScrapeTarget(job, url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scrapeTargets = append(p.scrapeTargets, scrapeTarget{job: job, url: url})
}

// scrapeComponents stores the metrics of each registered component until ctx ends.
func (p *playground) scrapeComponents(ctx context.Context, s *scraper) {
	ticker := time.NewTicker(p.options.scrapeInterval())
	defer ticker.Stop()
	for {
		p.mu.Lock()
		targets := p.scrapeTargets
		p.mu.Unlock()
		for _, target := range targets {
			at := s.now()
			batch := s.scrape(ctx, target)
			if err := p.prometheus.Append(ctx, target.url, at, batch); err != nil && ctx.Err() == nil {
				p.console.progressf("scraping %s: %v", target.job, err)
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
	up := 1.0
	if err != nil {
		batch, up = nil, 0
	}
	return append(batch, promserver.Sample{Labels: labels.FromStrings("__name__", "up", "job", target.job, "instance", target.url), Value: up})
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
		return nil, fmt.Errorf("%s: status %s", url, response.Status)
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
			return nil, fmt.Errorf("metrics of %s: %w", target.job, err)
		}
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
