// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/elasticresource"
	"crane.io/crane/internal/agent/podresource"
	tell "crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/component/featuregate"
	model "crane.io/crane/pkg/elastic"
)

// reservedFlag names the flag for the share of a node that is never offered as elastic resources.
const reservedFlag = "node-resource-reserved"

// ReclaimOptions are the flags of elastic resources.
type ReclaimOptions struct {
	// Reserved maps cpu and memory to shares of the node, such as 40%, that apply without an annotation of the node.
	Reserved map[string]string
}

func (o *ReclaimOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringToStringVar(&o.Reserved, reservedFlag, o.Reserved, "Shares of the node that are never offered as elastic resources, as in cpu=40%,memory=40%, unless an annotation of the node overrides them.")
}

func (o *ReclaimOptions) validate() field.ErrorList {
	if _, err := o.reserves(); err != nil {
		return field.ErrorList{invalid(reservedFlag, o.Reserved, err.Error())}
	}
	return nil
}

func (o *ReclaimOptions) reserves() (elasticresource.Reserves, error) {
	var out elasticresource.Reserves
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

// newElasticManagers returns the managers of elastic resources whose feature gates are on, and connects the loop to the reclaimable
// capacity.
func (p *parts) newElasticManagers(did func(tell.Action), l *loop, files act.FileWriter) ([]Manager, error) {
	var list []Manager
	if p.FeatureGates.Enabled(featuregate.NodeResource) && p.api != nil {
		reserves, err := p.Reclaim.reserves()
		if err != nil {
			return nil, err
		}
		m := elasticresource.New(elasticresource.Config{
			View: p.view, Latest: p.latest, NodeChanged: p.nodeChanged, Client: p.api, Objects: p.api.objects, Namespace: p.Namespace, Reserves: reserves,
			Enforce: p.enforces(enforceNodeResource), Clock: p.clock, Log: p.log, Beat: p.heartbeats.Register("node-resource"), Report: did,
		})
		if err := p.register(m); err != nil {
			return nil, err
		}
		l.reclaimable = m.ReclaimableCapacity
		list = append(list, m)
	}
	if p.FeatureGates.Enabled(featuregate.PodResource) {
		config := podresource.Config{View: p.view, Latest: p.latest, Layout: p.layout, Clock: p.clock, Log: p.log, Beat: p.heartbeats.Register("pod-resource"), Report: did}
		if p.enforces(enforcePodResource) {
			memory, err := p.memoryJournal(files)
			if err != nil {
				return nil, err
			}
			config.Journal, config.MemoryJournal = p.journal, memory
			list = append(list, undoOnStop{memory, p.reporter})
		}
		m := podresource.New(config)
		if err := p.register(m); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}
