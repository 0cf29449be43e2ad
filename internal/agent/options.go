// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/logging"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/series"
)

const (
	outputTable = "table"
	outputJSON  = "json"

	// defaultInterval is that of rules; gocrane's 10 s are too slow to act in two.
	defaultInterval = time.Second
	leastInterval   = 100 * time.Millisecond
	mostInterval    = time.Minute

	// enforceThrottle is the action that can be carried out.
	enforceThrottle = "cpu-throttle"
)

// Options are the flags of crane-agent.
type Options struct {
	HostRoot string
	// DryRun changes nothing; Once looks once and prints.
	DryRun, Once bool
	// Enforce are the kinds of actions that are carried out.
	Enforce []string
	// StateDir holds the journal of what was changed.
	StateDir string
	Log      logging.Options
	// Rules, Pods and PolicyConfig are files.
	Rules, Pods, PolicyConfig string
	// Scenario is a file that is played instead.
	Scenario   string
	Kubeconfig string
	NodeName   string
	NodeLabels string
	Interval   time.Duration
	Excess     string
	Output     string
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{HostRoot: "/", Interval: defaultInterval, Excess: "10%", Output: outputTable, StateDir: "/var/lib/crane-agent", Log: logging.DefaultOptions()}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.HostRoot, "host-root", o.HostRoot, "Directory below which the host's /proc, /sys and /var are seen.")
	fs.BoolVar(&o.DryRun, "dry-run", o.DryRun, "Change nothing.")
	fs.BoolVar(&o.Once, "once", o.Once, "Look at the host for one --collect-interval, print what is seen and what the rules would do, and end.")
	fs.StringSliceVar(&o.Enforce, "enforce", o.Enforce, "Kinds of actions to carry out; all others are only logged. There is one: "+enforceThrottle+".")
	fs.StringVar(&o.StateDir, "state-dir", o.StateDir, "Directory of the journal of what was changed, on a disk that outlasts the process.")
	fs.StringVar(&o.Rules, "rules", o.Rules, "File with the NodeQOS, PodQOS and AvoidanceActions that hold, as YAML documents.")
	fs.StringVar(&o.Pods, "pods", o.Pods, "File with the node's pods, as kubectl get pods -o yaml prints them, where there is no API server.")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "Kubeconfig of the API server that knows the node and its pods; empty for none.")
	fs.StringVar(&o.NodeName, "hostname-override", o.NodeName, "Name of the node; by default $NODE_NAME, else the host's name.")
	fs.StringVar(&o.NodeLabels, "node-labels", o.NodeLabels, "Labels of the node, as in pool=mixed,zone=a, where there is no API server. Empty for unknown: then every NodeQOS is taken.")
	fs.StringVar(&o.PolicyConfig, "policy-config-path", o.PolicyConfig, "File of the scheduler's policy whose water marks hold here as well; empty for none.")
	fs.DurationVar(&o.Interval, "collect-interval", o.Interval, "Time between two looks at the host, from 100ms to 1m.")
	fs.StringVar(&o.Excess, "execute-excess", o.Excess, "How much more than what is above a threshold has to go, as a percentage.")
	fs.StringVar(&o.Scenario, "scenario", o.Scenario, "File with pressure on a simulated node that is played in virtual time, with what happens; nothing of the host is looked at.")
	fs.StringVarP(&o.Output, "output", "o", o.Output, "Format of the output of --once: table or json.")
	o.Log.AddFlags(fs)
}

// Validate returns what is wrong with the flags, each error with the flag that it is about.
func (o *Options) Validate() field.ErrorList {
	var errs field.ErrorList
	invalid := func(flag string, value any, why string) {
		errs = append(errs, field.Invalid(field.NewPath("--"+flag), value, why))
	}
	if o.Output != outputTable && o.Output != outputJSON {
		errs = append(errs, field.NotSupported(field.NewPath("--output"), o.Output, []string{outputTable, outputJSON}))
	}
	if o.Scenario != "" {
		return errs
	}
	errs = append(errs, o.validateMode()...)
	errs = append(errs, o.Log.Validate()...)
	if o.Interval < leastInterval || o.Interval > mostInterval {
		invalid("collect-interval", o.Interval, fmt.Sprintf("must be from %s to %s", leastInterval, mostInterval))
	}
	if info, err := os.Stat(o.HostRoot); err != nil || !info.IsDir() {
		invalid("host-root", o.HostRoot, "must be a directory")
	}
	if o.Pods != "" && o.Kubeconfig != "" {
		invalid("pods", o.Pods, "must not be given together with --kubeconfig")
	}
	if _, err := o.excess(); err != nil {
		invalid("execute-excess", o.Excess, err.Error())
	}
	if _, err := labels.ConvertSelectorToLabelsMap(o.NodeLabels); err != nil {
		invalid("node-labels", o.NodeLabels, err.Error())
	}
	return errs
}

// validateMode returns what is wrong with what is to be carried out.
func (o *Options) validateMode() field.ErrorList {
	var errs field.ErrorList
	invalid := func(flag string, value any, why string) {
		errs = append(errs, field.Invalid(field.NewPath("--"+flag), value, why))
	}
	if o.DryRun == (len(o.Enforce) > 0) {
		invalid("dry-run", o.DryRun, "give either --dry-run or what to --enforce")
	}
	if o.Once && !o.DryRun {
		invalid("once", o.Once, "changes nothing: give --dry-run as well")
	}
	if len(o.Enforce) > 0 && o.Kubeconfig == "" && o.NodeLabels == "" {
		invalid("enforce", o.Enforce, "wants --kubeconfig or --node-labels: without the node's labels it is not known which NodeQOS are for it")
	}
	for _, e := range o.Enforce {
		if e != enforceThrottle {
			errs = append(errs, field.NotSupported(field.NewPath("--enforce"), e, []string{enforceThrottle}))
		}
	}
	return errs
}

func (o *Options) excess() (series.Ratio, error) {
	var percent float64
	var rest string
	if n, _ := fmt.Sscanf(o.Excess+" end", "%g%s", &percent, &rest); n != 2 || rest != "%" && rest != "end" || !(percent >= 0 && percent <= 100) {
		return 0, errors.New("must be a percentage from 0% to 100%")
	}
	return series.Ratio(percent / 100), nil
}

func (o *Options) limits() (qos.Limits, error) {
	l := qos.DefaultLimits()
	var err error
	l.Excess, err = o.excess()
	return l, err
}

func (o *Options) enforces(kind string) bool { return !o.DryRun && slices.Contains(o.Enforce, kind) }

// node is the node's name: the flag, else what a DaemonSet passes on, else the host's.
func (o *Options) node() string {
	if o.NodeName != "" {
		return o.NodeName
	}
	if name := os.Getenv("NODE_NAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

func (o *Options) root() host.Root { return host.Root(o.HostRoot) }
