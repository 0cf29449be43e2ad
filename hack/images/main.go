// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command images builds Crane's container images without a daemon: static binaries for several platforms on an empty base, one OCI image
// index for each command, with an SBOM for each platform attached as a referrer. With -sbom it writes the SBOMs of binaries to files, with
// -values it prints the values of the chart with the digests of pushed images. The same sources always have the same digest.
//
// Usage: images [flags] COMMAND... (run by `make images`)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

type options struct {
	source, out, push, version, revision, caFile, platforms, ldflags, values string
	created                                                                  int64
	sbom                                                                     bool
	// digests are those of the indexes that were built, by command.
	digests map[string]string
}

// rowFormat aligns the columns of the printed table.
const rowFormat = "%-15s  %-11s  %-10s  %s\n"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, to io.Writer) error {
	var o options
	fs := flag.NewFlagSet("images", flag.ContinueOnError)
	fs.StringVar(&o.source, "source", "../..", "root of the module whose ./cmd/COMMAND are built")
	fs.StringVar(&o.out, "out", "../../dist/images", "directory for the OCI layouts, one for each command")
	fs.StringVar(&o.push, "push", "", "registry and path to push to, for example registry.example/crane; empty pushes nothing")
	fs.StringVar(&o.version, "version", "unknown", "version of the images, also their tag")

	fs.StringVar(&o.revision, "revision", "", "commit of the sources")
	fs.Int64Var(&o.created, "created", 0, "time of the images, in seconds since 1970: that of the commit")
	fs.StringVar(&o.caFile, "ca-file", "/etc/ssl/certs/ca-certificates.crt", "certificate authorities in the images; empty for none")
	fs.StringVar(&o.platforms, "platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
	fs.StringVar(&o.ldflags, "ldflags", "-s -w", "flags of the linker; COMMAND:FLAGS after a semicolon adds flags for one command")
	fs.BoolVar(&o.sbom, "sbom", false, "write SPDX documents of the binaries into -out, and no images")
	fs.StringVar(&o.values, "values", "", "values.yaml to print with the digests of the images in -out, which -push must have; nothing is built")

	if err := fs.Parse(args); err != nil {
		return err
	}

	if o.values != "" {
		return o.writeValues(ctx, to)
	}

	if fs.NArg() == 0 {
		return errors.New("no command to build")
	}

	header := []any{"IMAGE", "PLATFORM", "COMPRESSED", "DIGEST"}
	write := o.image
	if o.sbom {
		header = []any{"BINARY", "PLATFORM", "SIZE", "DIGEST"}
		write = o.writeSBOMs

		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return err
		}
	}

	o.digests = map[string]string{}
	fmt.Fprintf(to, rowFormat, header...)

	for _, command := range fs.Args() {
		if err := write(ctx, command, to); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
	}

	if o.sbom {
		return nil
	}

	return o.writeDigests()
}

// image builds the images of one command, writes and pushes them.
func (o *options) image(ctx context.Context, command string, table io.Writer) error {
	var built []platformImage
	for text := range strings.SplitSeq(o.platforms, ",") {
		p, err := o.platformImage(ctx, command, text)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}

		built = append(built, p)
		if err := printImage(table, command, text, p.image); err != nil {
			return err
		}
	}

	index, err := newIndex(built)
	if err != nil {
		return err
	}

	digest, err := index.Digest()
	if err != nil {
		return err
	}

	o.digests[command] = digest.String()
	fmt.Fprintf(table, rowFormat, command, "index", "", digest)

	if err := writeLayout(filepath.Join(o.out, command), o.version, index, built); err != nil {
		return err
	}

	if o.push == "" {
		return nil
	}

	return o.pushImage(ctx, command, index, built)
}

// platformImage compiles a command for a platform and returns its image and SBOM.
func (o *options) platformImage(ctx context.Context, command, platform string) (platformImage, error) {
	content, remove, err := o.imageContent(ctx, command, platform)
	if err != nil {
		return platformImage{}, err
	}
	defer remove()

	return newPlatformImage(content)
}

// imageContent compiles a command for a platform into a temporary directory, which remove removes.
func (o *options) imageContent(ctx context.Context, command, platform string) (c imageContent, remove func(), err error) {
	parsed, err := v1.ParsePlatform(platform)
	if err != nil {
		return c, nil, err
	}

	dir, err := os.MkdirTemp("", "images-")
	if err != nil {
		return c, nil, err
	}

	remove = func() { _ = os.RemoveAll(dir) } // It is below the directory of temporary files.
	binary := filepath.Join(dir, "crane-binary")
	if err := o.compile(ctx, command, parsed, binary); err != nil {
		remove()
		return c, nil, err
	}

	bundled, err := o.npmPackages(ctx, command, parsed)
	if err != nil {
		remove()
		return c, nil, err
	}

	return imageContent{
		bundled:  bundled,
		command:  command,
		binary:   binary,
		caFile:   o.caFile,
		platform: parsed,
		version:  o.version,
		revision: o.revision,
		created:  time.Unix(o.created, 0).UTC(),
	}, remove, nil
}

// compile builds a static binary whose content does not depend on the directory or the state of the checkout.
func (o *options) compile(ctx context.Context, command string, platform *v1.Platform, path string) error {
	ldflags, rest, _ := strings.Cut(o.ldflags, ";")
	for more := range strings.SplitSeq(rest, ";") {
		if name, flags, ok := strings.Cut(more, ":"); ok && strings.TrimSpace(name) == command {
			ldflags += " " + flags
		}
	}

	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", path, "./cmd/"+command)
	build.Dir = o.source
	build.Env = goEnvironment(platform)
	build.Stderr = os.Stderr

	return build.Run()
}

// goEnvironment returns the environment of go for a platform, without the settings of this machine.
func goEnvironment(platform *v1.Platform) []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
}

func printImage(to io.Writer, command, platform string, image v1.Image) error {
	size := int64(0)
	layers, err := image.Layers()
	if err != nil {
		return err
	}

	for _, layer := range layers {
		n, err := layer.Size()
		if err != nil {
			return err
		}

		size += n
	}

	digest, err := image.Digest()
	if err != nil {
		return err
	}

	fmt.Fprintf(to, rowFormat, command, platform, fmt.Sprintf("%.1f MB", float64(size)/1e6), digest)
	return nil
}

// pushImage pushes the index under the version, then the SBOMs, which refer to the image of a platform.
func (o *options) pushImage(ctx context.Context, command string, index v1.ImageIndex, built []platformImage) error {
	tag, err := name.NewTag(o.push + "/" + command + ":" + o.version)
	if err != nil {
		return err
	}

	if err := remote.WriteIndex(tag, index, access(ctx)...); err != nil {
		return fmt.Errorf("pushing %s: %w", tag, err)
	}

	for _, p := range built {
		digest, err := p.sbom.Digest()
		if err != nil {
			return err
		}

		if err := remote.Write(tag.Digest(digest.String()), p.sbom, access(ctx)...); err != nil {
			return fmt.Errorf("pushing the SBOM of %s: %w", tag, err)
		}
	}

	return nil
}

// access returns the options of requests to the registry: the credentials are those of `docker login`.
func access(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}
