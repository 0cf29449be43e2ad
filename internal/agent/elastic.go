// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/internal/agent/elasticresource"
	"crane.io/crane/internal/agent/podresource"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/component/featuregate"
	model "crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/series"
)

// reservedFlag names the flag for the share of a node that is never offered as elastic resources.
const reservedFlag = "node-resource-reserved"

// defaultMemoryReserve keeps the memory above the water mark evict of the shipped policy (0.85) out of the offer: elastic pods that use all
// of an offer up to it would cause evictions. CPU has none, as in gocrane, because elastic pods yield it at once.
const defaultMemoryReserve series.Ratio = 0.15

// ReclaimOptions are the flags of elastic resources.
type ReclaimOptions struct {
	// Reserved maps cpu and memory to shares of the node, such as 40%, that apply without an annotation of the node. Memory has a default.
	Reserved map[string]string
}

func (o *ReclaimOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringToStringVar(&o.Reserved, reservedFlag, o.Reserved, "Shares of the node that are never offered as elastic resources, as in cpu=40%,memory=40%, unless an annotation of the node overrides them. Memory that is not named has 15%.")
}

func (o *ReclaimOptions) validate() field.ErrorList {
	if _, err := o.reserves(); err != nil {
		return field.ErrorList{invalid(reservedFlag, o.Reserved, err.Error())}
	}
	return nil
}

func (o *ReclaimOptions) reserves() (elasticresource.Reserves, error) {
	out := elasticresource.Reserves{Memory: defaultMemoryReserve}
	for name, text := range o.Reserved {
		share, err := model.ParseReserve(text)
		switch {
		case err != nil:
			return out, fmt.Errorf("%s: %w", name, err)
		case name == "cpu":
			out.CPU = share
		case name == "memory":
			out.Memory = share
		default:
			return out, fmt.Errorf("%.40q is neither cpu nor memory", name)
		}
	}
	return out, nil
}

// newElasticManagers returns the managers of elastic resources whose feature gates are on and the node's reclaimable capacity; nil if it is
// not computed.
func (e environment) newElasticManagers(access clusterAccess, j journals, reporter *report.Reporter) ([]Manager, func() elasticrequest.ReclaimableCapacity, error) {
	var list []Manager
	var reclaimable func() elasticrequest.ReclaimableCapacity
	if e.FeatureGates.Enabled(featuregate.NodeResource) && access.api != nil {
		reserves, err := e.Reclaim.reserves()
		if err != nil {
			return nil, nil, err
		}
		m := elasticresource.New(elasticresource.Config{
			View: access.view, Latest: e.latest, NodeChanged: access.nodeChanged, Client: access.api, Objects: access.api.objects, Namespace: e.Namespace,
			Reserves: reserves, Enforce: e.enforces(enforceNodeResource), Clock: e.clock, Log: e.log, Beat: e.heartbeats.Register("node-resource"),
			Report: reporter.ReportAction,
		})
		if err := e.register(m); err != nil {
			return nil, nil, err
		}
		list, reclaimable = append(list, m), m.ReclaimableCapacity
	}
	if e.FeatureGates.Enabled(featuregate.PodResource) {
		config := podresource.Config{
			View: access.view, Latest: e.latest, Layout: e.layout, Clock: e.clock, Log: e.log, Beat: e.heartbeats.Register("pod-resource"),
			Report: reporter.ReportAction,
		}
		if e.limitsElasticPods() {
			config.Journal, config.MemoryJournal = j.changes, j.memory
			list = append(list, undoOnStop{j.memory, reporter, e.restart.kept})
		}
		m := podresource.New(config)
		if err := e.register(m); err != nil {
			return nil, nil, err
		}
		list = append(list, m)
	}
	return list, reclaimable, nil
}

// limitsElasticPods reports whether the limits of elastic pods are changed.
func (e environment) limitsElasticPods() bool {
	return e.FeatureGates.Enabled(featuregate.PodResource) && e.enforces(enforcePodResource)
}
