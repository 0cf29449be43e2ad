// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"crane.io/crane/internal/kube/manifest"
)

const (
	// helmSecretType is the type of the Secrets in which Helm records releases.
	helmSecretType = "helm.sh/release.v1" //nolint:gosec // the name of a type of Secret
	// maxReleaseBytes limits a decompressed release; the Secret itself has at most 1 MiB.
	maxReleaseBytes = 64 << 20
)

// Release is a revision of a Helm release of one of gocrane's charts.
type Release struct {
	Name         string         `json:"name"`
	Namespace    string         `json:"namespace"`
	Chart        string         `json:"chart"`
	ChartVersion string         `json:"chartVersion"`
	AppVersion   string         `json:"appVersion"`
	Revision     int            `json:"revision"`
	Status       string         `json:"status"`
	Values       map[string]any `json:"values,omitempty"`

	object *Object
	owned  []Ref
}

// gocraneCharts are the names of gocrane's charts.
func gocraneCharts() []string { return []string{"crane", "scheduler", "fadvisor", "cost-exporter"} }

// helmRelease is the part of a record of Helm that is read.
type helmRelease struct {
	Name, Namespace, Manifest string
	Version                   int
	Config                    map[string]any
	Info                      struct{ Status string }
	Chart                     struct {
		Metadata struct{ Name, Version, AppVersion string }
	}
}

// parseRelease decodes a Secret of Helm.
func parseRelease(secret *Object) (*helmRelease, error) {
	encoded, err := base64.StdEncoding.DecodeString(stringAt(secret, "data", "release"))
	if err != nil {
		return nil, err
	}

	content, err := base64.StdEncoding.DecodeString(string(encoded))
	if err != nil {
		return nil, err
	}

	if bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
		if content, err = unzip(content, maxReleaseBytes); err != nil {
			return nil, err
		}
	}

	r := &helmRelease{}
	return r, json.Unmarshal(content, r)
}

// decodeRelease decodes a Secret of Helm. It returns nil for a release of another chart: Crane's own chart is called crane as well, and
// only the manifest of gocrane's has an image of gocrane.
func decodeRelease(secret *Object) (*Release, error) {
	r, err := parseRelease(secret)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", RefOf(secret), err)
	}

	if !slices.Contains(gocraneCharts(), r.Chart.Metadata.Name) || !gocraneImage(r.Manifest) {
		return nil, nil
	}

	release := &Release{
		Name:         r.Name,
		Namespace:    secret.GetNamespace(), // that in the record is free
		Chart:        r.Chart.Metadata.Name,
		ChartVersion: r.Chart.Metadata.Version,
		AppVersion:   r.Chart.Metadata.AppVersion,
		Revision:     r.Version,
		Status:       r.Info.Status,
		Values:       r.Config,
	}

	objects, err := manifest.ParseString(r.Manifest)
	if err != nil {
		return nil, fmt.Errorf("%s: the manifest of the release: %w", RefOf(secret), err)
	}

	for _, o := range objects {
		ref := RefOf(o)
		if ref.Namespace == "" && namespacedKind(ref) {
			ref.Namespace = release.Namespace
		}

		release.owned = append(release.owned, ref)
	}

	return release, nil
}

// unzip decompresses at most limit bytes.
func unzip(zipped []byte, limit int64) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, err
	}

	content, err := io.ReadAll(io.LimitReader(reader, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}

	return content, err
}
