// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"crane.io/crane/internal/component/wallclock"
	"crane.io/crane/internal/kube/slimclient"
	"crane.io/crane/internal/metrics"
	oomcontroller "crane.io/crane/internal/recommendation/controller/oomrecord"
	"crane.io/crane/pkg/oom"
)

// oomController is the name of the controller that records OOM kills.
const oomController = "oom"

const (
	// oomBytes leaves room in an object of at most 1 MiB for managed fields and the other keys.
	oomBytes = 900 << 10
	// oomAge is longer than the 14 days of history that sizing reads by default.
	oomAge = 30 * 24 * time.Hour
	// oomPerContainer suffices for sizing, which uses the largest and the latest kills of a container.
	oomPerContainer = 20
	// oomClean is the interval between two removals of old records.
	oomClean = time.Hour
)

// OOM are the settings of the controller that records OOM kills.
type OOM struct {
	// MaxRecords is the maximum number of records; the size of a ConfigMap may limit them further.
	MaxRecords int
}

func newOOM() OOM { return OOM{MaxRecords: 10_000} }

func (o *OOM) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.MaxRecords, "oom-record-max-number", o.MaxRecords,
		"Maximum number of recorded OOM kills; the oldest are dropped first. A ConfigMap has space for about 3000.")
}

func (o *OOM) validate() field.ErrorList {
	if o.MaxRecords < 1 {
		return field.ErrorList{field.Invalid(flag("oom-record-max-number"), o.MaxRecords, "must be 1 or more")}
	}

	return nil
}

// addOOM adds the controller that records OOM kills.
func addOOM(_ context.Context, d *dependencies) error {
	clients, err := slimclient.NewForConfig(d.mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("building the client of the OOM recorder: %w", err)
	}

	series := oomcontroller.NewMetrics()
	if err := metricsRegistry().Register(series); err != nil {
		return fmt.Errorf("registering the metrics of OOM kills: %w", err)
	}

	// Other features, such as recommendations, read the recorded kills from the recorder.
	d.recorder = oomcontroller.NewRecorder(oomcontroller.Config{
		Pods:       clients.CoreV1(),
		ConfigMaps: clients.CoreV1(),
		Objects:    d.mgr.GetAPIReader(),
		Namespace:  d.Namespace,
		Limits: oom.Limits{
			Count:        d.OOM.MaxRecords,
			Bytes:        oomBytes,
			PerContainer: oomPerContainer,
			Age:          oomAge,
		},
		CleanEvery: oomClean,
		Events:     d.mgr.GetEventRecorder("craned"),
		Metrics:    series,
		Clock:      wallclock.New(),
	})

	if err := d.mgr.Add(d.recorder); err != nil {
		return fmt.Errorf("adding the OOM recorder: %w", err)
	}

	return nil
}

// combinedKills reads the recorded kills together with those of the source of history.
func (d *dependencies) combinedKills(source metrics.OOMReader) metrics.OOMReader {
	if d.recorder == nil {
		return source
	}

	return oomcontroller.Reader{Ledger: d.recorder, Other: source}
}
