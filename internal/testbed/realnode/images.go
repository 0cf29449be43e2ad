// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// LoadImages imports OCI image layouts into the containerd of this node. Each layout is named after its directory below registry, with the
// tags of the layout, such as registry/craned:v1.
func (n *Node) LoadImages(ctx context.Context, registry string, layouts ...string) error {
	if n.namespaceNode == nil || n.options.crio() {
		return fmt.Errorf("loading images into %s: supported for nodes in namespaces with containerd", n.Name())
	}

	return LoadImages(ctx, n.Path(containerdSocket), registry, layouts...)
}

// LoadImages imports OCI image layouts as (*Node).LoadImages, through a socket of containerd.
func LoadImages(ctx context.Context, socket, registry string, layouts ...string) error {
	for _, dir := range layouts {
		name := registry + "/" + filepath.Base(dir)
		reader, writer := io.Pipe()
		go func() { writer.CloseWithError(archive(writer, dir)) }()

		var output bytes.Buffer
		command := exec.CommandContext(ctx, "ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", "--base-name", name, "-")
		command.Stdin = reader
		command.Stdout = &output
		command.Stderr = &output

		err := command.Run()
		if err := errors.Join(err, reader.Close()); err != nil {
			return fmt.Errorf("loading image %s: %w: %s", name, err, strings.TrimSpace(output.String()))
		}
	}

	return nil
}

// archive writes the files of a directory as a tar archive.
func archive(to io.Writer, dir string) error {
	w := tar.NewWriter(to)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		return err
	}

	return w.Close()
}

// Layouts returns the OCI image layouts in the directories below dir.
func Layouts(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "oci-layout"))
	if err != nil {
		return nil, fmt.Errorf("finding images in %s: %w", dir, err)
	}

	if len(files) == 0 {
		return nil, fmt.Errorf("no images in %s: run `make images`", dir)
	}

	layouts := make([]string, len(files))
	for i, f := range files {
		layouts[i] = filepath.Dir(f)
	}

	return layouts, nil
}

// RunningNodes returns the sockets of containerd of all nodes in namespaces that run on this machine, in any session.
func RunningNodes() ([]string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, fmt.Errorf("finding running nodes: %w", err)
	}

	want := strings.Join([]string{"containerd", "-c", configDir + "/containerd.toml"}, "\x00") + "\x00"
	var sockets []string
	for _, file := range files {
		// Processes end in between.
		if content, err := os.ReadFile(file); err == nil && string(content) == want {
			sockets = append(sockets, filepath.Join(filepath.Dir(file), "root", containerdSocket))
		}
	}

	return sockets, nil
}
