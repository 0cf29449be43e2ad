// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package realcluster

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/realnode"
	"crane.io/crane/internal/testbed/realnode/assets"
)

// Names of the release.
const (
	Release   = "crane"
	Namespace = "crane-system"
	// Registry is the prefix of Crane's images on nodes; no registry serves it.
	Registry = assets.Registry + "crane"
)

// values are those of a cluster for trying Crane: a learning window of an hour that has begun.
//
//go:embed values.yaml
var values []byte

// workloads are samples with known use, beside requests that do not fit it.
//
//go:embed workloads.yaml
var workloads string

// ownRule is a RecommendationRule for crane-agent; the chart's rules evaluate no DaemonSets.
//
//go:embed rule.yaml
var ownRule string

// Chart installs Crane.
type Chart struct {
	// Helm is the path of helm, Dir that of the chart, Kubeconfig that of the cluster.
	Helm, Dir, Kubeconfig string
	// Tag is the tag of Crane's images.
	Tag string
	// Work is a directory for the file of values.
	Work string
}

// Install installs the release with the values of this package and more arguments of helm, whose values win, and waits until all pods are
// Ready.
func (c Chart) Install(ctx context.Context, args ...string) error {
	return c.apply(ctx, "install", append([]string{"--create-namespace"}, args...)...)
}

// Upgrade upgrades the release likewise.
func (c Chart) Upgrade(ctx context.Context, args ...string) error {
	return c.apply(ctx, "upgrade", args...)
}

func (c Chart) apply(ctx context.Context, verb string, args ...string) error {
	file := filepath.Join(c.Work, "values.yaml")
	if err := os.WriteFile(file, values, 0o600); err != nil {
		return fmt.Errorf("writing the values of the chart: %w", err)
	}

	return c.Run(ctx, slices.Concat([]string{verb, Release, c.Dir, "--values", file}, args,
		[]string{"--set", "image.registry=" + Registry, "--set-string", "image.tag=" + c.Tag, "--wait", "--timeout", "5m"})...)
}

// Run runs helm for the namespace of the release.
func (c Chart) Run(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, c.Helm, append(args, "--namespace", Namespace, "--kubeconfig", c.Kubeconfig)...)
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+c.Work, "HELM_CONFIG_HOME="+c.Work, "HELM_DATA_HOME="+c.Work)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("helm %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}

	return nil
}

// LoadCrane loads the images of a directory of OCI layouts into nodes and returns their tag.
func LoadCrane(ctx context.Context, dir string, nodes ...*realnode.Node) (tag string, err error) {
	layouts, err := realnode.Layouts(dir)
	if err != nil {
		return "", err
	}

	for _, n := range nodes {
		if err := n.LoadImages(ctx, Registry, layouts...); err != nil {
			return "", err
		}
	}

	return layoutTag(layouts[0])
}

// layoutTag returns the tag of an OCI image layout.
func layoutTag(dir string) (string, error) {
	content, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		return "", fmt.Errorf("reading the tag of %s: %w", dir, err)
	}

	var index struct {
		Manifests []struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"manifests"`
	}

	if err := json.Unmarshal(content, &index); err != nil {
		return "", fmt.Errorf("reading the tag of %s: %w", dir, err)
	}

	for _, m := range index.Manifests {
		if tag := m.Annotations["org.opencontainers.image.ref.name"]; tag != "" {
			return tag, nil
		}
	}

	return "", fmt.Errorf("tag of %s: no manifest has one", dir)
}

// CreateWorkloads creates the sample workloads.
func CreateWorkloads(ctx context.Context, c *realnode.Cluster) error {
	return create(ctx, c, workloads)
}

// CreateOwnRule lets an installed Crane recommend requests for its agents too.
func CreateOwnRule(ctx context.Context, c *realnode.Cluster) error {
	return create(ctx, c, ownRule)
}

func create(ctx context.Context, c *realnode.Cluster, text string) error {
	objects, err := manifest.ParseString(text)
	if err != nil {
		return fmt.Errorf("applying objects of the cluster: %w", err)
	}

	applier, err := manifest.NewApplier(c.Control().Config(), "cluster")
	if err != nil {
		return fmt.Errorf("applying objects of the cluster: %w", err)
	}

	return applier.Apply(ctx, objects...)
}
