// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promserver

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
)

// scrapeReload is the delay between the start of the server and the first scrape of a target.
const scrapeReload = model.Duration(100 * time.Millisecond)

// Appender implements storage.Appendable for scraped samples.
func (d *database) Appender(ctx context.Context) storage.Appender {
	db, err := d.get()
	if err != nil {
		return closedAppender{err: err}
	}

	return db.Appender(ctx)
}

// closedAppender refuses all samples while the data is closed.
type closedAppender struct {
	storage.Appender
	err error
}

func (a closedAppender) Commit() error                     { return a.err }
func (a closedAppender) Rollback() error                   { return nil }
func (a closedAppender) SetOptions(*storage.AppendOptions) {}

// startScraping scrapes the targets of Options.ScrapeConfigs until the returned manager is stopped.
func (s *Server) startScraping() (*scrape.Manager, error) {
	if s.opts.ScrapeConfigs == "" {
		return nil, nil
	}

	text := fmt.Sprintf("global:\n  scrape_interval: %s\n%s", model.Duration(s.opts.ScrapeInterval), s.opts.ScrapeConfigs)
	cfg, err := config.Load(text, s.opts.Logger)
	if err != nil {
		return nil, fmt.Errorf("promserver: loading the scrape configuration: %w", err)
	}

	groups := map[string][]*targetgroup.Group{}
	for _, job := range cfg.ScrapeConfigs {
		for _, d := range job.ServiceDiscoveryConfigs {
			static, ok := d.(discovery.StaticConfig)
			if !ok {
				return nil, fmt.Errorf("promserver: job %s: service discovery %s is not supported, only static_configs", job.JobName, d.Name())
			}

			groups[job.JobName] = append(groups[job.JobName], static...)
		}
	}

	manager, err := scrape.NewManager(&scrape.Options{DiscoveryReloadInterval: scrapeReload}, s.opts.Logger, nil, s.data, nil, s.reg)
	if err != nil {
		return nil, fmt.Errorf("promserver: creating the scrape manager: %w", err)
	}

	if err := manager.ApplyConfig(cfg); err != nil {
		return nil, fmt.Errorf("promserver: configuring the scrape manager: %w", err)
	}

	// Static targets never change, so they are sent once instead of by a discovery manager.
	updates := make(chan map[string][]*targetgroup.Group, 1)
	updates <- groups
	go func() {
		if err := manager.Run(updates); err != nil {
			s.opts.Logger.Error("scraping ended", "err", err)
		}
	}()

	return manager, nil
}
