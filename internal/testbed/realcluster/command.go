// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package realcluster is a cluster for trying Crane: real nodes with Services and DNS on this machine, Crane installed by its chart, a
// Prometheus that scrapes the nodes, and sample workloads. It implements the command `cluster`.
package realcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/realnode"
	"crane.io/crane/internal/testbed/realnode/assets"
	"crane.io/crane/internal/testbed/realnode/bridge"
	"crane.io/crane/internal/testbed/realnode/doctor"
	"crane.io/crane/internal/testbed/realnode/sandbox"
)

// firstBound bounds the wait for the first Recommendation.
const firstBound = 10 * time.Minute

type options struct {
	nodes                   int
	binDir, imageDir, chart string
	values                  []string
	once, load              bool
	session                 *sandbox.Session
	set                     assets.Set
	begin                   time.Time
	out, errOut             io.Writer
}

// Run runs the command line and returns the exit status.
func Run(args []string, out, errOut io.Writer) (int, error) {
	o := options{begin: time.Now(), out: out, errOut: errOut}
	flags := pflag.NewFlagSet("cluster", pflag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.IntVar(&o.nodes, "nodes", 2, "number of nodes")
	flags.StringVar(&o.binDir, "bin-dir", "bin", "directory of the binaries of nodes and of helm")
	flags.StringVar(&o.imageDir, "images", "dist/images", "directory of Crane's images as OCI layouts, from `make images`")
	flags.StringVar(&o.chart, "chart", "charts/crane", "directory of the chart")
	flags.StringArrayVar(&o.values, "values", nil, "file of values of the chart; may be repeated")
	flags.BoolVar(&o.once, "once", false, "exit when there are Recommendations")
	flags.BoolVar(&o.load, "load-images", false, "load the images into the nodes that run on this machine, and exit")

	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return 0, nil
		}

		return 2, err
	}

	// Only the number of nodes can be invalid; the rest is checked where it is used.
	if flags.NArg() > 0 || o.nodes < 1 || o.nodes > bridge.MaxNodes {
		return 2, fmt.Errorf("want no arguments and 1 to %d nodes", bridge.MaxNodes)
	}

	if o.load {
		return 0, o.loadImages(context.Background())
	}

	return o.enter()
}

// loadImages loads the images into nodes of other sessions.
func (o *options) loadImages(ctx context.Context) error {
	layouts, err := realnode.Layouts(o.imageDir)
	if err != nil {
		return err
	}

	sockets, err := realnode.RunningNodes()
	if err != nil {
		return err
	}

	if len(sockets) == 0 {
		return errors.New("no node runs on this machine: start nodes with `make nodes`")
	}

	// The nodes belong to other sessions; their sockets are reached through /proc.
	for _, socket := range sockets {
		if err := realnode.LoadImages(ctx, socket, Registry, layouts...); err != nil {
			return err
		}
	}

	tag, err := layoutTag(layouts[0])
	if err != nil {
		return err
	}

	_, err = fmt.Fprintf(o.out, "Loaded into %d nodes: %s/NAME:%s. Install with --set image.registry=%s,image.tag=%s,image.pullPolicy=Never\n",
		len(sockets), Registry, tag, Registry, tag)
	return err
}

// enter checks the machine, enters new namespaces and starts the cluster there.
func (o *options) enter() (int, error) {
	if !sandbox.Inside() {
		if err := doctor.Problems(doctor.CheckNamespaces(context.Background())); err != nil {
			return 1, fmt.Errorf("this machine cannot run real nodes:\n%w", err)
		}
	}

	var err error
	if o.set, err = assets.FromDir(o.binDir); err != nil {
		return 1, err
	}

	return sandbox.Enter(sandbox.Options{Kit: o.set.Kit, Ports: 1}, func(s *sandbox.Session) int {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()

		o.session = s
		if err := o.up(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(o.errOut, "cluster:", err)
			return 1
		}

		return 0
	})
}

func (o *options) progressf(format string, args ...any) {
	_, _ = fmt.Fprintf(o.out, "%5.1fs  "+format+"\n", append([]any{time.Since(o.begin).Seconds()}, args...)...)
}

// up starts everything, prints the first Recommendations and waits until ctx ends. It stops nothing: the kernel ends all processes with
// this one, the first of its PID namespace.
func (o *options) up(ctx context.Context) error {
	c, nodes, err := o.startNodes(ctx)
	if err != nil {
		return err
	}

	o.progressf("%d nodes are Ready, with Services and DNS", len(nodes))
	if _, err := StartPrometheus(ctx, c, filepath.Join(o.session.Dir, "prometheus"), nodes, o.errOut); err != nil {
		return err
	}

	if err := CreateWorkloads(ctx, c); err != nil {
		return err
	}

	o.progressf("Prometheus is Service %s/%s; sample workloads are in namespace shop", Monitoring, PrometheusService)
	tag, err := LoadCrane(ctx, o.imageDir, nodes...)
	if err != nil {
		return err
	}

	o.progressf("images %s/NAME:%s are on the nodes", Registry, tag)

	// Prometheus and the workloads exist before Crane, so that its first run finds measurements.
	chart := Chart{
		Helm:       filepath.Join(filepath.Dir(o.set.Kit), "helm"),
		Dir:        o.chart,
		Kubeconfig: c.Control().Kubeconfig(),
		Tag:        tag,
		Work:       o.session.Dir,
	}

	var args []string
	for _, file := range o.values {
		args = append(args, "--values", file)
	}

	if err := chart.Install(ctx, args...); err != nil {
		return err
	}

	o.progressf("Crane is installed by its chart, every pod is Ready")
	if err := CreateOwnRule(ctx, c); err != nil {
		return err
	}

	if err := o.awaitRecommendations(ctx, c); err != nil {
		return err
	}

	if o.once {
		return nil
	}

	fmt.Fprintf(o.out, "\nTry: kubectl --kubeconfig %s get recommendations -A\nCtrl-C stops the nodes and removes everything.\n", c.Control().Kubeconfig())
	<-ctx.Done()
	return nil
}

func (o *options) startNodes(ctx context.Context) (*realnode.Cluster, []*realnode.Node, error) {
	control, err := controlplane.Start(ctx, controlplane.Options{
		Dir:           filepath.Join(o.session.Dir, "controlplane"),
		Binary:        o.set.Controlplane,
		APIServerPort: o.session.Ports[0],
		ExtraArgs:     realnode.APIServerArgs(),
		Components:    []controlplane.Component{controlplane.ControllerManager, controlplane.Scheduler},
		Log:           o.errOut,
	})
	if err != nil {
		return nil, nil, err
	}

	o.session.Relay("127.0.0.1")
	c, err := realnode.Open(ctx, o.session, control, o.set, o.errOut)
	if err != nil {
		return nil, nil, err
	}

	// Only nodes that start afterward have Services.
	if err := c.EnableServices(ctx); err != nil {
		return nil, nil, err
	}

	nodes, err := c.StartNodes(ctx, make([]realnode.NodeOptions, o.nodes)...)
	return c, nodes, err
}

// awaitRecommendations waits until a container has a recommended value, and prints all Recommendations.
func (o *options) awaitRecommendations(ctx context.Context, c *realnode.Cluster) error {
	for _, expected := range []struct {
		description, namespace string
		workloads              int
	}{{"the first Recommendations", SampleNamespace, SampleWorkloads}, {"Recommendations for Crane itself", Namespace, OwnWorkloads}} {
		list, err := AwaitRecommendations(ctx, c, expected.namespace, expected.workloads, firstBound)
		if err != nil {
			return err
		}

		o.progressf("%s:", expected.description)
		for i := range list {
			fmt.Fprintf(o.out, "        %s/%s %s: %s\n", list[i].Namespace, list[i].Spec.TargetRef.Name, list[i].Spec.Type, list[i].Status.Change)
		}
	}

	return nil
}

// AwaitRecommendations returns the Recommendations of type Resource in a namespace when as many workloads have one with a value.
func AwaitRecommendations(ctx context.Context, c *realnode.Cluster, namespace string, workloads int, bound time.Duration) ([]analysisv1alpha1.Recommendation, error) {
	scheme := runtime.NewScheme()
	if err := analysisv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}

	reader, err := client.New(c.Control().Config(), client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("creating the client of Recommendations: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()

	// Early Recommendations have no value yet, so they do not count.
	for {
		var list analysisv1alpha1.RecommendationList
		err := reader.List(ctx, &list, client.InNamespace(namespace))

		var sized []analysisv1alpha1.Recommendation
		for i := range list.Items {
			if r := &list.Items[i]; r.Spec.Type == analysisv1alpha1.AnalysisTypeResource && r.Status.RecommendedValue != "" {
				sized = append(sized, *r)
			}
		}

		if err == nil && len(sized) >= workloads {
			return sized, nil
		}

		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d Recommendations, %d with a value, in %s: %w", len(list.Items), workloads, len(sized), bound, errors.Join(err, context.Cause(ctx)))
		case <-ticker.C:
		}
	}
}

const (
	// SampleNamespace has the samples of workloads.yaml.
	SampleNamespace = "shop"
	// SampleWorkloads is the number of their Deployments.
	SampleWorkloads = 3
	// OwnWorkloads is the number of Deployments and DaemonSets of Crane that the chart installs.
	OwnWorkloads = 4
)
