// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"

	"crane.io/crane/internal/agent/features"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/component/deprecatedflags"
	gates "crane.io/crane/internal/component/featuregate"
	"crane.io/crane/internal/component/logging"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

const (
	outputTable = "table"
	outputJSON  = "json"

	// defaultInterval lets rules act within two seconds, for which gocrane's 10 s are too slow.
	defaultInterval = time.Second
	minInterval     = 100 * time.Millisecond
	maxInterval     = time.Minute

	defaultInactivity = 5 * time.Minute
	defaultStop       = 20 * time.Second

	defaultNamespace = "crane-system"
)

// Options are the flags of crane-agent.
type Options struct {
	HostRoot string
	// DryRun changes nothing; Once prints one observation and exits.
	DryRun, Once bool
	// Enforce lists the kinds of actions to execute.
	Enforce []string
	// StateDir holds the journal of changes.
	StateDir string
	Log      logging.Options
	// PolicyConfig is the file of the scheduler's policy.
	PolicyConfig string
	// Scenario is a scenario file to run instead, Replay a recording to replay.
	Scenario, Replay string
	// Record is the file for the recording; empty for none. RecordBytes is the size at which it is rotated.
	Record      string
	RecordBytes int64
	Interval    time.Duration
	Excess      string
	Output      string

	// BindAddress serves health checks and metrics; empty or 0 for none.
	BindAddress string
	// MetricsSecure serves over TLS, and metrics and profiles to clients that the API server permits to get them.
	MetricsSecure bool
	// Profiling serves profiles at BindAddress.
	Profiling bool
	// MaxInactivity is the longest time without a heartbeat of a part before health checks fail.
	MaxInactivity time.Duration
	// CleanUp undoes changes of agents that ended, removes StateDir and exits.
	CleanUp bool
	// StopTimeout bounds the time all parts take to stop and undo their changes.
	StopTimeout time.Duration
	// RestartGrace is how long changes stay at the end if another agent follows; 0 to undo them at every end.
	RestartGrace time.Duration
	// AuditFile receives a line per action; empty for none. AuditBytes is the size at which it is rotated.
	AuditFile  string
	AuditBytes int64
	// EvictionBudget is the number of pods that all agents of the cluster may evict within BudgetWindow; 0 for no bound.
	EvictionBudget int
	BudgetWindow   time.Duration
	// KubeletRoot is the kubelet's directory below the host's root.
	KubeletRoot string
	// PodGroup is the cgroup of all pods; empty to detect it.
	PodGroup string
	// Cycles counts cycles and instructions of latency-sensitive pods.
	Cycles       bool
	FeatureGates featuregate.MutableFeatureGate
	Cluster      ClusterOptions
	Eviction     EvictionOptions
	Reclaim      ReclaimOptions
	CPUs         CPUOptions
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	namespace := os.Getenv("CRANE_SYSTEM_NAMESPACE")
	if namespace == "" {
		namespace = defaultNamespace
	}

	return &Options{
		HostRoot:       "/",
		Interval:       defaultInterval,
		Excess:         "10%",
		Output:         outputTable,
		StateDir:       "/var/lib/crane-agent",
		Log:            logging.DefaultOptions(),
		BindAddress:    "0.0.0.0:8081",
		MaxInactivity:  defaultInactivity,
		StopTimeout:    defaultStop,
		RestartGrace:   defaultRestartGrace,
		KubeletRoot:    "/var/lib/kubelet",
		Cluster:        ClusterOptions{Namespace: namespace},
		FeatureGates:   gates.New(),
		AuditBytes:     defaultAuditBytes,
		RecordBytes:    defaultRecordBytes,
		EvictionBudget: defaultBudget,
		BudgetWindow:   defaultBudgetWindow,
		CPUs:           defaultCPUOptions(),
	}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.HostRoot, "host-root", o.HostRoot, "Directory with the host's /proc, /sys and /var.")
	fs.SetNormalizeFunc(deprecatedflags.NormalizeDashes)
	fs.BoolVar(&o.DryRun, "dry-run", o.DryRun, "Change nothing except the Node's feature annotation, and not even that with --once.")
	fs.BoolVar(&o.CleanUp, "cleanup", o.CleanUp, "Undo what agents that ended have changed on this node, remove --state-dir, and exit. No other agent may run on the node.")
	fs.BoolVar(&o.Once, "once", o.Once, "Observe the host for one --collect-interval, print the measurements and the planned actions of the rules, and exit.")
	fs.StringSliceVar(&o.Enforce, "enforce", o.Enforce, "Kinds of actions to execute; all others are only reported: "+strings.Join(enforceKindNames(), ", ")+".")
	fs.StringVar(&o.StateDir, "state-dir", o.StateDir, "Directory of the journal of changes, on a disk that outlives the process.")
	fs.StringVar(&o.PolicyConfig, "policy-config-path", o.PolicyConfig, "File of the scheduler's policy with the water marks below which no pod is evicted; empty for none.")
	fs.DurationVar(&o.Interval, "collect-interval", o.Interval, "Interval of measurements, from 100ms to 1m.")

	fs.StringVar(&o.Excess, "execute-excess", o.Excess, "Percentage to reclaim beyond the excess over the threshold.")
	fs.StringVar(&o.Scenario, "scenario", o.Scenario, "File with a scenario of pressure on a simulated node to run in virtual time; the host is not read.")
	fs.StringVar(&o.Record, "record", o.Record, "File for a recording of all measurements for --replay. It has the names and the use of pods, but not their environment variables. Empty for none.")
	fs.Int64Var(&o.RecordBytes, "record-max-bytes", o.RecordBytes, "Size in bytes at which the recording is rotated to FILE.1.")
	fs.StringVar(&o.Replay, "replay", o.Replay, "Recording to replay with its own rules or those of --rules. It prints their planned actions. The host is not read.")
	fs.StringVarP(&o.Output, "output", "o", o.Output, "Format of the output of --once: table or json.")
	fs.StringVar(&o.BindAddress, "bind-address", o.BindAddress, "Address of /health-check, /healthz, /readyz and /metrics; empty or 0 for none.")
	fs.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure,
		"Serve --bind-address over TLS, and /metrics and /debug/pprof to clients that the API server permits to get them. Pages of health stay open.")

	fs.BoolVar(&o.Profiling, "enable-profiling", o.Profiling, "Serve /debug/pprof at --bind-address as well.")
	fs.DurationVar(&o.MaxInactivity, "max-inactivity", o.MaxInactivity, "Time without activity of a part of the agent after which health checks fail, at least 10s.")
	fs.DurationVar(&o.StopTimeout, "stop-timeout", o.StopTimeout, "Timeout to stop and undo the agent's changes, at least 1s.")
	fs.DurationVar(&o.RestartGrace, "restart-grace-period", o.RestartGrace, "Time for which limits, taint and exclusive CPUs stay when the agent ends and its DaemonSet starts another one, up to 30m; 0 to undo them at every end.")
	fs.StringVar(&o.KubeletRoot, "kubelet-root-path", o.KubeletRoot, "Directory of the kubelet, below --host-root.")
	fs.StringVar(&o.PodGroup, "pod-cgroup", o.PodGroup, "Cgroup of all pods, relative to the hierarchies, such as k8s.slice/k8s-kubepods.slice. If empty, it is detected by the kubelet's cgroupRoot and cgroupDriver.")
	fs.StringVar(&o.AuditFile, "audit-file", o.AuditFile, "File for a line of JSON per action with its target, rule, numbers and outcome. Empty for none.")
	fs.Int64Var(&o.AuditBytes, "audit-max-bytes", o.AuditBytes, "Size in bytes at which the audit file is rotated to FILE.1.")
	fs.IntVar(&o.EvictionBudget, "eviction-budget", o.EvictionBudget, "Number of pods that all agents of the cluster together may evict within --eviction-budget-window, up to 1000; 0 for no bound. Must be the same on all nodes.")

	fs.DurationVar(&o.BudgetWindow, "eviction-budget-window", o.BudgetWindow, "Window of --eviction-budget, from 1s to 1h.")
	fs.BoolVar(&o.Cycles, "cycles-per-instruction", o.Cycles, "Count CPU cycles and instructions of latency-sensitive pods, which requires the capability PERFMON and a CPU whose counters the kernel can use.")
	o.FeatureGates.AddFlag(fs)
	o.Cluster.addFlags(fs)
	o.Eviction.addFlags(fs)
	o.Reclaim.addFlags(fs)
	o.CPUs.addFlags(fs)
	o.Log.AddFlags(fs)
	deprecatedflags.Add(fs, deprecatedFlags()) // After all others.
}

// Complete returns warnings about flags without effect.
func (o *Options) Complete(fs *pflag.FlagSet) []string {
	return append(deprecatedflags.Warnings(fs), gates.Warnings(fs, "crane-agent", isServedGate)...)
}

func (o *Options) excess() (units.Ratio, error) {
	var percent float64
	var rest string
	if n, _ := fmt.Sscanf(o.Excess+" end", "%g%s", &percent, &rest); n != 2 || rest != "%" && rest != "end" || !(percent >= 0 && percent <= 100) {
		return 0, errors.New("must be a percentage from 0% to 100%")
	}

	return units.Ratio(percent / 100), nil
}

func (o *Options) limits() (qos.Limits, error) {
	l := qos.DefaultLimits()
	var err error
	l.Excess, err = o.excess()

	return l, err
}

func (o *Options) hostRoot() host.Root { return host.Root(o.HostRoot) }

// servedGates returns the feature gates the agent uses. --enforce controls what their parts may change.
func servedGates() []featuregate.Feature {
	return []featuregate.Feature{gates.NodeResource, gates.PodResource, gates.NodeResourceTopology, gates.CraneCPUManager}
}

func isServedGate(gate featuregate.Feature) bool { return slices.Contains(servedGates(), gate) }

// deprecatedFlags returns gocrane's flags without a function in crane-agent.
func deprecatedFlags() []deprecatedflags.Flag {
	return append([]deprecatedflags.Flag{
		{Name: "cgroup-driver", Default: "cgroupfs", Replacement: "the kubelet's driver is detected"},
		{Name: "runtime-endpoint", Replacement: "cgroups are read and written directly; no container runtime is asked"},
		{Name: "sys-path", Default: "/sys", Replacement: "use --host-root"},
		{Name: "ifaces", Default: "[eth0]", Replacement: "all interfaces of the host are measured; a rule chooses by the label NetInterface"},
	}, deprecatedflags.LogFlags()...)
}

// unusedFeatures returns the kernel features that the flags leave unused, with the reason.
func (o *Options) unusedFeatures() map[string]string {
	out := map[string]string{}
	for feature, users := range map[string][]string{
		features.CPUBurst:      {enforceThrottle, enforcePodResource},
		features.CPUIdle:       {enforcePodResource},
		features.MemoryHigh:    {enforceMemory},
		features.MemoryReclaim: {enforceMemory},
	} {
		if !slices.ContainsFunc(users, o.enforces) {
			out[feature] = "--enforce names nothing that uses it (" + strings.Join(users, ", ") + ")"
		}
	}

	if !o.FeatureGates.Enabled(gates.NodeResourceTopology) {
		out[features.NUMA] = "--feature-gates has no " + string(gates.NodeResourceTopology) + "=true"
	}

	return out
}
