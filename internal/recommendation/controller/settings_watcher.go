// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/component/configfile"
)

// settingsWatcher reloads the configuration file on the leader and reports the result in events, logs and metrics.
type settingsWatcher struct {
	settings  *configfile.File[Settings]
	events    events.EventRecorder
	namespace string
	loaded    func()
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (settingsWatcher) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (f settingsWatcher) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("recommendation")
	record := func(kind, reason, text string) {
		// Events need an object; the namespace represents the installation.
		about := &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: f.namespace}
		f.events.Eventf(about, nil, kind, reason, "Load/"+hash(text), "%s", truncateMessage(text))
	}

	reportInvalid := func(s Settings) {
		if err := s.Invalid(); err != nil {
			log.Error(err, "the recommendation configuration has recommenders that cannot be used")
			record(corev1.EventTypeWarning, reasonSettingsInvalid, "Recommenders that cannot be used: "+strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}

	reportInvalid(f.settings.Content())
	f.settings.Run(ctx, configfile.Observer[Settings]{
		Loaded: func(s Settings) {
			log.Info("loaded the recommendation configuration", "recommenders", s.names())
			record(corev1.EventTypeNormal, reasonSettingsLoaded, "A new configuration is in force with these recommenders: "+s.names()+".")
			reportInvalid(s)
			f.loaded()
		},
		Rejected: func(err error) {
			log.Error(err, "rejected the recommendation configuration: the previous one stays in force")
			record(corev1.EventTypeWarning, reasonSettingsRejected, "The previous configuration stays in force: "+err.Error())
		},
	})

	return nil
}

var (
	settingsValidDesc = prometheus.NewDesc("crane_analysis_recommendation_configuration_valid",
		"1 if the configuration file is in force, 0 if it is invalid and an older version is in force, or one of its recommenders cannot be used.", nil, nil)
	settingsLoadsDesc = prometheus.NewDesc("crane_analysis_recommendation_configuration_loads_total",
		"Changes of the configuration file by result: loaded or refused.", []string{"result"}, nil)
)

// Describe implements prometheus.Collector.
func (settingsWatcher) Describe(ch chan<- *prometheus.Desc) {
	ch <- settingsValidDesc
	ch <- settingsLoadsDesc
}

// Collect implements prometheus.Collector.
func (f settingsWatcher) Collect(ch chan<- prometheus.Metric) {
	s := f.settings.State()
	valid := 1.0
	if s.Invalid || f.settings.Content().Invalid() != nil {
		valid = 0
	}

	ch <- prometheus.MustNewConstMetric(settingsValidDesc, prometheus.GaugeValue, valid)
	ch <- prometheus.MustNewConstMetric(settingsLoadsDesc, prometheus.CounterValue, s.Succeeded, "loaded")
	ch <- prometheus.MustNewConstMetric(settingsLoadsDesc, prometheus.CounterValue, s.Failed, "refused")
}
