// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/component/termtext"
)

// recordInterval is the time between the two readings.
const recordInterval = 10 * time.Second

// newRecordCommand returns the command that prints the files of a host.
func newRecordCommand() *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Print the files of this host that the agent reads, twice",
		Long: "Prints the files of /proc, /sys and the cgroups that the agent reads, twice in ten seconds. They name no pods and no images, only the\n" +
			"UIDs of pods and the IDs of containers. Contribute the output if crane-agent --once is wrong on your kernel.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return recordHost(cmd.Context(), o, clock.RealClock{}, termtext.NewWriter(cmd.OutOrStdout()))
		},
	}

	cmd.Flags().StringVar(&o.HostRoot, "host-root", o.HostRoot, "Directory with the host's /proc, /sys and /var.")
	cmd.Flags().StringVar(&o.PodGroup, "pod-cgroup", o.PodGroup, "Cgroup of all pods, relative to the hierarchies. If empty, it is detected.")
	return cmd
}

// hostRecorder reads the files of a host.
type hostRecorder struct {
	root host.Root
	pods string // the group of all pods
}

// recordHost writes the files that the agent reads in the format of the recordings in testdata/kernels: "== 10s ==" starts a reading,
// "-- path --" a file. Files that exist and cannot be read are listed in comments at the start.
func recordHost(ctx context.Context, o *Options, clk clock.Clock, out io.Writer) error {
	layout, err := o.detectCgroups()
	if err != nil {
		return fmt.Errorf("detecting cgroups: %w", err)
	}

	release, err := os.ReadFile(o.hostRoot().Path("proc/sys/kernel/osrelease"))
	if err != nil {
		release = []byte("unknown")
	}

	r := hostRecorder{o.hostRoot(), layout.Pods}
	before, unreadable := r.readFiles()
	select {
	case <-ctx.Done():
		return fmt.Errorf("recording: %w", ctx.Err())
	case <-clk.After(recordInterval):
	}

	after, _ := r.readFiles()
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "# kernel %s, cgroup %s, pods in %s\n", bytes.TrimSpace(release), layout.Version, layout.Pods)
	for _, line := range unreadable {
		fmt.Fprintf(w, "# unreadable %s\n", line)
	}

	fmt.Fprintf(w, "== 0s ==\n")
	written := map[string]string{}
	writeFiles := func(files []recordedFile) {
		for _, f := range files {
			if last, ok := written[f.path]; !ok || last != f.content {
				fmt.Fprintf(w, "-- %s --\n%s", f.path, f.content)
				written[f.path] = f.content
			}
		}
	}

	writeFiles(before)
	fmt.Fprintf(w, "== %s ==\n", recordInterval)
	writeFiles(after)
	return w.Flush()
}

// recordedFile is a file below the host's root.
type recordedFile struct{ path, content string }

// readFiles reads the files and returns those that exist and cannot be read, with the reason.
func (r hostRecorder) readFiles() (files []recordedFile, unreadable []string) {
	read := func(path string) {
		content, err := os.ReadFile(r.root.Path(path))
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && bytes.ContainsAny(content, "\x00"):
		case err != nil:
			unreadable = append(unreadable, path+": "+errors.Unwrap(err).Error())
		default:
			files = append(files, recordedFile{path, string(content)})
		}
	}

	for _, path := range []string{
		"proc/stat", "proc/meminfo", "proc/loadavg", "proc/diskstats", "proc/1/net/dev",
		"proc/pressure/cpu", "proc/pressure/memory", "proc/pressure/io",
		"sys/devices/system/cpu/online", "sys/devices/system/cpu/isolated", "sys/fs/cgroup/cgroup.controllers", "sys/fs/cgroup/unified/cgroup.controllers",
	} {
		read(path)
	}

	for _, pattern := range []string{
		"sys/devices/system/node/node*/cpulist", "sys/devices/system/node/node*/meminfo", "sys/devices/system/node/node*/distance",
		"sys/devices/system/cpu/cpu*/topology/core_cpus_list", "sys/devices/system/cpu/cpu*/cache/index3/level",
		"sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list", "sys/block/*/dev", "sys/block/*/stat",
	} {
		found, _ := filepath.Glob(r.root.Path(pattern)) // The patterns are valid.
		for _, path := range found {
			read(r.belowRoot(path))
		}
	}

	if r.pods == "" {
		return files, unreadable
	}

	// On v1 each controller has a tree of its own.
	roots := []string{r.root.Path("sys/fs/cgroup", r.pods)}
	more, _ := filepath.Glob(r.root.Path("sys/fs/cgroup/*", r.pods))
	for _, root := range append(roots, more...) {
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && isRecordedSetting(entry.Name()) {
				read(r.belowRoot(path))
			}

			return nil // Groups may vanish meanwhile.
		})
	}

	return files, unreadable
}

func (r hostRecorder) belowRoot(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, filepath.Clean(string(r.root))), "/")
}

// isRecordedSetting reports whether a cgroup file is one that the agent may read; lists of processes are not recorded.
func isRecordedSetting(name string) bool {
	controller, _, _ := strings.Cut(name, ".")
	switch controller {
	case "cpu", "cpuacct", "cpuset", "memory", "io", "blkio":
		return true
	}

	return false
}
