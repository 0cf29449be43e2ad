// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const chartValues = `image:
  tag: ""
hello:
  image:
    # Name of the image.
    repository: hello
    # Digest of the image.
    digest: ""
other:
  digest: ""
`

// newRegistry starts a registry in memory and returns the path for images in it.
func newRegistry(t *testing.T) string {
	t.Helper()

	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/crane"
}

// pushedDigest returns the digest of what a tag refers to in the registry.
func pushedDigest(t *testing.T, tag string) string {
	t.Helper()

	ref, err := name.ParseReference(tag)
	if err != nil {
		t.Fatal(err)
	}

	descriptor, err := remote.Head(ref)
	if err != nil {
		t.Fatal(err)
	}

	return descriptor.Digest.String()
}

// TestValuesGetDigests checks that values.yaml gets the digest of the image that was pushed, and is refused for images of another version, for images that
// were not built, and for a registry without them.
func TestValuesGetDigests(t *testing.T) {
	to := newRegistry(t)
	out := t.TempDir()
	build(t, newModule(t), out, "--push", to)
	file := filepath.Join(t.TempDir(), "values.yaml")

	values := func(content, version, registry string) (string, error) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}

		var printed bytes.Buffer
		err := run(t.Context(), []string{"--values", file, "--version", version, "--out", out, "--push", registry}, &printed)
		return printed.String(), err
	}

	got, err := values(chartValues, testVersion, to)
	want := strings.Replace(chartValues, `digest: ""`, fmt.Sprintf("digest: %q", pushedDigest(t, to+"/hello:"+testVersion)), 1)
	if err != nil || got != want {
		t.Errorf("%v: values\n%s\nwant\n%s", err, got, want)
	}

	for message, call := range map[string][3]string{
		"of version " + testVersion + ", not v9":           {chartValues, "v9", to},
		"image missing was not built":                      {strings.Replace(chartValues, "repository: hello", "repository: missing", 1), testVersion, to},
		"0 digests for 1 images":                           {strings.Replace(chartValues, `    digest: ""`, `    digest: "x"`, 1), testVersion, to},
		"is not in the registry, push it with make images": {chartValues, testVersion, newRegistry(t)},
		"needs the registry":                               {chartValues, testVersion, ""},
	} {
		if printed, err := values(call[0], call[1], call[2]); err == nil || printed != "" || !strings.Contains(err.Error(), message) {
			t.Errorf("%v: want %q", err, message)
		}
	}
}

// TestPushedChart builds small programs in place of Crane's commands, pushes them and the chart as a release does, and renders the pushed chart:
// every image is the pushed one, by its digest. It needs helm (make test-integration builds it).
func TestPushedChart(t *testing.T) {
	helm, err := filepath.Abs("../../bin/helm")
	if err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(helm); err != nil {
		t.Skipf("no helm: %v", err)
	}

	commands := []string{"crane", "crane-agent", "crane-scheduler", "craned", "metric-adapter"}
	module := newModule(t)
	for _, command := range commands {
		if err := os.CopyFS(filepath.Join(module, "cmd", command), os.DirFS(filepath.Join(module, "cmd", "hello"))); err != nil {
			t.Fatal(err)
		}
	}

	to := newRegistry(t)
	dist := t.TempDir()
	args := []string{
		"--source", module, "--out", filepath.Join(dist, "images"), "--version", testVersion, "--created", "1700000000", "--platforms", "linux/amd64",
		"--ca-file", "", "--push", to,
	}

	if err := run(t.Context(), append(args, commands...), io.Discard); err != nil {
		t.Fatal(err)
	}

	home := t.TempDir()
	command := func(program string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "HELM="+helm, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("running %s %v: %v: %s", program, args, err, text)
		}

		return string(text)
	}

	command("../push-chart.sh", testVersion, to, dist, "--plain-http")

	plainVersion := strings.TrimPrefix(testVersion, "v")
	rendered := command(helm, "template", "crane", "oci://"+to+"/charts/crane", "--version", plainVersion, "--plain-http", "--namespace", "crane-system",
		"--set", "image.registry=registry.example/crane,prometheus.url=http://prometheus:9090,dashboard.enabled=true")

	var want, have, lines []string
	for _, command := range commands {
		digest := pushedDigest(t, to+"/"+command+":"+testVersion)
		want = append(want, "registry.example/crane/"+command+"@"+digest)
		lines = append(lines, command+" "+testVersion+" "+digest)
	}

	for line := range strings.Lines(rendered) {
		if image, ok := strings.CutPrefix(strings.TrimLeft(strings.TrimSpace(line), "- "), "image: "); ok {
			have = append(have, image)
		}
	}

	slices.Sort(want)
	slices.Sort(have)

	if have = slices.Compact(have); !slices.Equal(have, want) {
		t.Errorf("images of the pushed chart:\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}

	lines = append(lines, "charts/crane "+testVersion+" "+pushedDigest(t, to+"/charts/crane:"+plainVersion), "")
	digests, err := os.ReadFile(filepath.Join(dist, "digests"))
	if err != nil || string(digests) != strings.Join(lines, "\n") {
		t.Errorf("digests %s, want %s: %v", digests, strings.Join(lines, "\n"), err)
	}
}
