// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"crane.io/crane/config"
	"crane.io/crane/internal/component/version"
	"crane.io/crane/internal/kube/manifest"
)

// craneNamespace is the namespace of Crane's manifests; their admission policies name it.
const craneNamespace = "crane-system"

// builtinManifests returns the manifests of Crane that this program embeds, with images.
func builtinManifests(o Options) ([]*Object, error) {
	if o.ImageRegistry == "" {
		return nil, fmt.Errorf("the built-in manifests need --image-registry, or give those of `helm template` with --manifests")
	}

	objects, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		return nil, err
	}

	tag := o.ImageTag
	if tag == "" {
		tag, err = defaultTag(version.String())
		if err != nil {
			return nil, err
		}
	}

	// The embedded manifests have images without a registry, which only the operator knows.
	for _, w := range objects {
		editContainers(w, func(c map[string]any) {
			image, _ := c["image"].(string)
			if image, ok := strings.CutPrefix(image, config.ImagePrefix); ok {
				name, _, _ := strings.Cut(image, ":")
				c["image"] = strings.TrimSuffix(o.ImageRegistry, "/") + "/" + name + ":" + tag
			}
		})
	}

	return objects, nil
}

var (
	tagPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	// pseudoVersion matches the end of the version that the Go tool derives from a commit without a tag.
	pseudoVersion = regexp.MustCompile(`[.-]\d{14}-[0-9a-f]{12}$`)
)

// defaultTag returns the tag of the images of a version of this program, which have that version as their tag. Versions without images are
// an error: unknown ones, and those of builds without a tag.
func defaultTag(version string) (string, error) {
	if version == "unknown" || !tagPattern.MatchString(version) || pseudoVersion.MatchString(version) {
		return "", fmt.Errorf("the version of this crane, %s, is no tag of images: give theirs with --image-tag", version)
	}

	return version, nil
}

// editContainers changes the containers of a workload.
func editContainers(o *Object, change func(map[string]any)) {
	path := []string{"spec", "template", "spec", "containers"}
	containers, found, _ := unstructured.NestedSlice(o.Object, path...)
	if !found {
		return
	}

	for _, c := range containers {
		if m, ok := c.(map[string]any); ok {
			change(m)
		}
	}

	_ = unstructured.SetNestedSlice(o.Object, containers, path...)
}

// checkManifests reports manifests that cannot be those of Crane.
func checkManifests(objects []*Object) error {
	var names []string
	for _, o := range objects {
		if o.GetKind() == "Deployment" || o.GetKind() == "DaemonSet" {
			names = append(names, o.GetName())
			if gocraneWorkload(o) || o.GetLabels()[labelPartOf] != "crane" {
				return fmt.Errorf("%s of the manifests is not Crane's", RefOf(o))
			}
		}

		if o.GetNamespace() != "" && o.GetNamespace() != craneNamespace && o.GetNamespace() != "kube-system" {
			return fmt.Errorf("%s: Crane's namespace is %s", RefOf(o), craneNamespace)
		}
	}

	if !slices.Contains(names, componentCraned) {
		return fmt.Errorf("the manifests have no Deployment craned")
	}

	return nil
}
