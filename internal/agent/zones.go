// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cpupinning"
	"crane.io/crane/internal/agent/features"
	"crane.io/crane/internal/agent/kubeletsocket"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/topology"
	"crane.io/crane/internal/component/featuregate"
	"crane.io/crane/pkg/numa"
)

// minPeriod is the least interval between CPU checks.
const minPeriod = time.Second

// CPUOptions are the flags of the CPU manager.
type CPUOptions struct {
	// Period is the interval at which the CPUs of containers are checked.
	Period time.Duration
	// Policy applies to pods without a policy of their own.
	Policy string
	// BindMemory lets containers with CPUs of their own allocate memory only in the zones of these CPUs.
	BindMemory bool
	// KubeletConfig is the kubelet's configuration file below the host's root; empty for config.yaml in its directory.
	KubeletConfig string
}

func defaultCPUOptions() CPUOptions {
	return CPUOptions{Period: cpupinning.DefaultPeriod, Policy: string(numa.PolicyExclusive)}
}

func (o *CPUOptions) addFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.Period, "cpu-manager-reconcile-period", o.Period, "Interval at which the CPUs of containers are checked, at least 1s.")
	fs.BoolVar(&o.BindMemory, "cpu-manager-bind-memory", o.BindMemory, "Let containers with CPUs of their own allocate memory only in the zones of these CPUs (cpuset.mems), as long as their limits fit there beside everything else in use. A container that is bound to a full zone is OOM-killed.")
	fs.StringVar(&o.KubeletConfig, "kubelet-config", o.KubeletConfig, "File with the kubelet's configuration, below --host-root; empty for config.yaml in --kubelet-root-path. Used if the kubelet does not return its configuration (permission nodes/configz).")
	fs.StringVar(&o.Policy, "default-cpu-policy", o.Policy, "CPU policy of pods without one of their own: none, exclusive, numa or immovable.")
}

func (o *CPUOptions) validate() field.ErrorList {
	var errs field.ErrorList
	if o.Period < minPeriod {
		errs = append(errs, invalid("cpu-manager-reconcile-period", o.Period, fmt.Sprintf("must be at least %s", minPeriod)))
	}

	all := []string{string(numa.PolicyNone), string(numa.PolicyExclusive), string(numa.PolicyNUMA), string(numa.PolicyImmovable)}
	if !slices.Contains(all, o.Policy) {
		errs = append(errs, field.NotSupported(field.NewPath("--default-cpu-policy"), o.Policy, all))
	}

	return errs
}

// newZoneManagers returns the managers of the NUMA zones and of the CPUs of containers whose feature gates are on. own receives the
// function that returns the exclusive CPUs. The CPU manager is nil if its gate is off.
func (e environment) newZoneManagers(
	access clusterAccess, journal *act.Journal, reporter *report.Reporter, setExclusive func(source func() (cpus numa.CPUSet, ok bool)),
) ([]Manager, *cpupinning.Manager, error) {
	if !e.FeatureGates.Enabled(featuregate.NodeResourceTopology) {
		return nil, nil, nil
	}

	config := topology.Config{
		Root:        e.hostRoot(),
		KubeletDir:  e.KubeletRoot,
		KubeletFile: e.CPUs.KubeletConfig,
		Assignments: e.kubelet,
		View:        access.view,
		NodeName:    e.Cluster.nodeName(),
		PinsCPUs:    e.pinsCPUs(),
		DryRun:      e.DryRun,
		Report:      reporter.ReportAction,
		Clock:       e.clock,
		Log:         e.log,
		Beat:        e.heartbeats.Register("topology"),
	}

	if access.api != nil {
		config.Dynamic = access.api.objects
		config.Kubelet = e.kubeletClient(access.api.config)
	}
	if !e.DryRun {
		config.AnswerPath = filepath.Join(e.StateDir, topology.AnswerFile)
	}

	zones := topology.NewManager(config)
	list := []Manager{zones}
	if !e.FeatureGates.Enabled(featuregate.CraneCPUManager) {
		return list, nil, nil
	}

	cpus := cpupinning.Config{
		Layout:               e.layout,
		View:                 access.view,
		Topology:             zones.Latest,
		StatePath:            filepath.Join(e.StateDir, cpupinning.StateFile),
		PredecessorStatePath: e.hostRoot().Path(e.KubeletRoot, cpupinning.StateFile),
		Policy:               numa.Policy(e.CPUs.Policy),
		BindMemory:           e.CPUs.BindMemory,
		Latest:               e.latest,
		Period:               e.CPUs.Period,
		Report:               reporter.ReportAction,
		Clock:                e.clock,
		Log:                  e.log,
		Beat:                 e.heartbeats.Register("cpu-manager"),
		Keep:                 e.restart.kept,
	}

	if e.enforces(enforceCPUManager) {
		cpus.Journal = journal
	}

	manager := cpupinning.NewManager(cpus)
	// A dry run assigns none, and the observer must not count them as exclusive.
	if cpus.Journal != nil {
		setExclusive(manager.ExclusiveCPUs)
	}

	if err := register(e, manager); err != nil {
		return nil, nil, err
	}

	return append(list, manager), manager, nil
}

// pinsCPUs reports whether this agent assigns CPUs to containers, unless the kubelet does.
func (e environment) pinsCPUs() bool {
	return e.FeatureGates.Enabled(featuregate.CraneCPUManager) && e.enforces(enforceCPUManager) && cpupinning.UnsupportedReason(e.layout) == ""
}

// cpuManagerFeature returns whether containers get exclusive CPUs on this node.
func cpuManagerFeature(cpus *cpupinning.Manager) features.Feature {
	f := features.Feature{Name: "cpu-manager", State: features.Off, Reason: fmt.Sprintf("--feature-gates has no %s=true", featuregate.CraneCPUManager)}
	if cpus == nil {
		return f
	}

	s := cpus.Status()
	if s.Active {
		f.State = features.On
		f.Reason = ""
		return f
	}

	f.Reason = s.Reason
	if s.Unsupported {
		f.State = features.Unsupported
	}

	return f
}

// readZones reads the NUMA zones once, and the kubelet's reservations from the kubelet if there is an API server.
func (o *Options) readZones(ctx context.Context, api *clients, node *corev1.Node, kubelet kubeletsocket.Source, clk clock.PassiveClock) topology.Summary {
	reader := &topology.KubeletReader{
		Root:        o.hostRoot(),
		Dir:         o.KubeletRoot,
		File:        o.CPUs.KubeletConfig,
		Assignments: kubelet,
		Clock:       clk,
	}

	if api != nil {
		reader.Client = o.kubeletClient(api.config)
	}

	return topology.Summarize(ctx, o.hostRoot(), reader, node)
}

// kubeletSocket returns the path of the kubelet's socket.
func kubeletSocket(o *Options) string { return o.hostRoot().Path(o.KubeletRoot, kubeletsocket.Path) }

// kubeletClient returns a client of the node's kubelet with the API server's credentials.
func (o *Options) kubeletClient(credentials *rest.Config) *topology.KubeletClient {
	return &topology.KubeletClient{Credentials: credentials, Root: o.hostRoot(), Dir: o.KubeletRoot}
}
