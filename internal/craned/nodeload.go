// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"
	_ "time/tzdata" // Annotations of old readers have times in a named zone, and images have no zones.

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"crane.io/crane/internal/component/wallclock"
	"crane.io/crane/internal/kube/slimclient"
	nodeloadcontroller "crane.io/crane/internal/nodeload/controller"
	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// NodeLoad are the settings of the controller that writes the load of nodes.
type NodeLoad struct {
	// PolicyFile is a file of kind DynamicSchedulerPolicy.
	PolicyFile string
	// requirePolicy is set by Complete if the flag was set, so that the file must exist.
	requirePolicy bool
	// Labels are the labels of series that may name a node, in order of preference.
	Labels []string
	// Material is the change of a load, as a fraction of capacity, that is written at once.
	Material float64
	// TimeZone is the zone of times in annotations; empty for UTC.
	TimeZone string
	// APIQPS is the maximum rate of patches in 1/s, Workers the maximum number at a time.
	APIQPS  float32
	Workers int
	// TaintAbove is the share of the mark schedule above which nodes are tainted; 0 for never.
	TaintAbove float64
	DryRun     bool
}

// newNodeLoad returns the defaults. 5,000 nodes at 100 patches per second take 50 s, less than the shortest usual period of 3
// min; two hundredths of a node are less than one pod of a usual size uses.
func newNodeLoad() NodeLoad {
	return NodeLoad{
		PolicyFile: policyfile.DefaultPath,
		Labels:     []string{"node", "instance"},
		Material:   0.02,
		APIQPS:     100,
		Workers:    10,
	}
}

func (n *NodeLoad) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&n.PolicyFile, "policy-config-path", n.PolicyFile,
		"File of kind DynamicSchedulerPolicy, reloaded when it changes. If the default file does not exist, the built-in policy is used.")
	fs.StringSliceVar(&n.Labels, "node-load-labels", n.Labels,
		"Labels of series that name a node, by its name or internal IP, with or without a port; the first that matches counts.")
	fs.Float64Var(&n.Material, "node-load-material-change", n.Material,
		"Minimum change of a load that is written before the old value expires, as a fraction of the node's capacity.")

	fs.StringVar(&n.TimeZone, "node-load-time-zone", n.TimeZone,
		"Time zone of the times in annotations, such as Asia/Shanghai, for readers and writers of gocrane. Empty: UTC.")
	fs.Float32Var(&n.APIQPS, "node-load-api-qps", n.APIQPS, "Maximum number of node patches per second, in addition to --api-qps.")
	fs.IntVar(&n.Workers, "node-load-workers", n.Workers, "Maximum number of nodes that are patched at once.")
	fs.Float64Var(&n.TaintAbove, "node-load-taint-above", n.TaintAbove,
		"Share of the water mark schedule, such as 0.9, above which nodes get a NoSchedule taint that node autoscalers see. 0: nodes are not tainted.")
	fs.BoolVar(&n.DryRun, "node-load-dry-run", n.DryRun, "Dry run: log the planned annotations of nodes and write none.")
}

func (n *NodeLoad) validate() field.ErrorList {
	var errs field.ErrorList
	if len(n.Labels) == 0 || slices.Contains(n.Labels, "") {
		errs = append(errs, field.Required(flag("node-load-labels"), "want the names of labels, such as node,instance"))
	}

	// The negated comparisons reject NaN as well.
	if !(n.Material >= 0 && n.Material <= 1) {
		errs = append(errs, field.Invalid(flag("node-load-material-change"), n.Material, "must be a fraction from 0 to 1"))
	}

	if _, err := n.format(); err != nil {
		errs = append(errs, field.Invalid(flag("node-load-time-zone"), n.TimeZone, err.Error()))
	}

	if !(n.APIQPS > 0) {
		errs = append(errs, field.Invalid(flag("node-load-api-qps"), n.APIQPS, "must be more than 0"))
	}

	if !(n.TaintAbove >= 0 && n.TaintAbove <= 1) {
		errs = append(errs, field.Invalid(flag("node-load-taint-above"), n.TaintAbove, "must be a fraction from 0 to 1"))
	}

	if n.Workers < 1 {
		errs = append(errs, field.Invalid(flag("node-load-workers"), n.Workers, "must be 1 or more"))
	}

	return errs
}

func (n *NodeLoad) format() (nodeload.Format, error) {
	zone, err := time.LoadLocation(n.TimeZone) // The empty name is UTC.
	if err != nil {
		return nodeload.Format{}, err
	}

	return nodeload.Format{Zone: zone}, nil
}

// openPolicy opens the policy file. Only the default path may be missing.
func (n *NodeLoad) openPolicy(ctx context.Context) (*policyfile.File, error) {
	policy, err := policyfile.Open(n.PolicyFile, policyfile.DefaultInterval, wallclock.New())
	if errors.Is(err, fs.ErrNotExist) && !n.requirePolicy {
		ctrl.LoggerFrom(ctx).Info("using the built-in node-load policy: there is no file", "file", n.PolicyFile)
		builtin, err := policyfile.Builtin()
		if err != nil {
			return nil, err
		}

		return policyfile.Fixed(builtin, wallclock.New()), nil
	}

	if err != nil {
		return nil, fmt.Errorf("--policy-config-path: %w", err)
	}

	return policy, nil
}

// trimNodes removes the list of images, the largest part of a Node, from the cache.
func trimNodes() map[client.Object]cache.ByObject {
	strip := cache.TransformStripManagedFields()
	return map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: func(o any) (any, error) {
		if n, ok := o.(*corev1.Node); ok {
			n.Status.Images = nil
			n.Status.VolumesAttached = nil
			n.Status.VolumesInUse = nil
		}

		return strip(o)
	}}}
}

// addNodeLoad adds the controller that writes the load of nodes.
func addNodeLoad(
	mgr manager.Manager, o *Options, policy *policyfile.File, format nodeload.Format, sources nodeloadcontroller.Sources,
) (*nodeloadcontroller.Controller, error) {
	// Patches have a rate limit of their own, so that loads do not delay the writes of other controllers.
	burst := max(1, int(o.NodeLoad.APIQPS))

	patches, err := nodeloadcontroller.NewPatcher(mgr.GetConfig(), o.NodeLoad.APIQPS, burst)
	if err != nil {
		return nil, err
	}

	clients, err := slimclient.NewForConfig(mgr.GetConfig())
	if err != nil {
		return nil, fmt.Errorf("building the client of pods: %w", err)
	}

	binds := nodeloadcontroller.NewBinds(clients.CoreV1(), wallclock.New())
	metrics := nodeloadcontroller.NewMetrics()
	controller, err := nodeloadcontroller.New(nodeloadcontroller.Config{
		Policy:     policy,
		Sources:    sources,
		Nodes:      mgr.GetCache(),
		Patches:    patches,
		Binds:      binds,
		Format:     format,
		Labels:     o.NodeLoad.Labels,
		Material:   units.Ratio(o.NodeLoad.Material),
		Workers:    o.NodeLoad.Workers,
		DryRun:     o.NodeLoad.DryRun,
		TaintAbove: units.Ratio(o.NodeLoad.TaintAbove),
		Namespace:  o.Namespace,
		Events:     mgr.GetEventRecorder("craned"),
		Metrics:    metrics,
		Clock:      wallclock.New(),
	})
	if err != nil {
		return nil, fmt.Errorf("building the node-load controller: %w", err)
	}

	if err := metricsRegistry().Register(metrics); err != nil {
		return nil, fmt.Errorf("registering the metrics of node loads: %w", err)
	}

	for _, part := range []manager.Runnable{binds, controller} {
		if err := mgr.Add(part); err != nil {
			return nil, fmt.Errorf("adding the node-load controller: %w", err)
		}
	}

	return controller, nil
}
