// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command images puts the images of an archive in the OCI image layout into the store of CRI-O, which has no command for that and, on a
// test node, no registry to pull from. It runs before CRI-O does.
package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/containers/image/v5/copy"
	"github.com/containers/image/v5/oci/layout"
	"github.com/containers/image/v5/signature"
	imagestorage "github.com/containers/image/v5/storage"
	"github.com/containers/storage"
	"github.com/containers/storage/pkg/reexec"
)

const (
	// graphRoot and runRoot are where CRI-O's configuration has its store.
	graphRoot, runRoot = "/var/lib/containers/storage", "/run/containers/storage"
	// nameKey is the annotation that holds the name of an image of the archive.
	nameKey = "io.containerd.image.name"
)

func main() {
	// The store unpacks layers in a process of its own, which is this program again.
	if reexec.Init() {
		return
	}

	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "images: want the archive")
		os.Exit(2)
	}

	if err := load(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func load(ctx context.Context, archive string) (err error) {
	dir, err := os.MkdirTemp("", "images-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	if err := unpack(archive, dir); err != nil {
		return fmt.Errorf("unpacking %s: %w", archive, err)
	}

	store, err := storage.GetStore(storage.StoreOptions{GraphRoot: graphRoot, RunRoot: runRoot, GraphDriverName: "overlay"})
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	defer func() {
		_, closeErr := store.Shutdown(false)
		err = errors.Join(err, closeErr)
	}()

	// The imported images were built on this machine and are not signed.
	policy, err := signature.NewPolicyContext(&signature.Policy{Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, policy.Destroy()) }()

	images, err := layout.List(dir)
	if err != nil {
		return err
	}

	for i, image := range images {
		name := image.ManifestDescriptor.Annotations[nameKey]
		from, err := layout.NewIndexReference(dir, i)
		if err != nil {
			return err
		}

		to, err := imagestorage.Transport.ParseStoreReference(store, name)
		if err != nil {
			return fmt.Errorf("image %q: %w", name, err)
		}

		if _, err := copy.Image(ctx, policy, to, from, &copy.Options{}); err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
	}

	return nil
}

// unpack writes the files of an archive below a directory and nowhere else.
func unpack(archive, dir string) error {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer in.Close()

	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()

	for files := tar.NewReader(in); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}

		if header.Typeflag != tar.TypeReg {
			continue
		}

		if err := root.MkdirAll(path.Dir(header.Name), 0o755); err != nil {
			return err
		}

		out, err := root.Create(header.Name)
		if err != nil {
			return err
		}

		_, err = io.Copy(out, files)
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
}
