// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/component/version"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/installation"
)

const bundleLong = `Bundle writes a support bundle, a compressed tar file: the output of crane status, Crane's objects, workloads, ConfigMaps and events, and the
last lines of the logs of its pods. It reads no Secrets. Values of environment variables, of keys and flags that name a password, token or
header, credentials in URLs, paths of webhooks, bearer tokens, JSON Web Tokens and private keys are replaced by REDACTED in every file.

What cannot be read, for example without the right to, is listed in errors.txt and left out.`

// Bounds of a bundle.
const (
	bundleObjects  = 1000    // of a kind
	bundleFile     = 8 << 20 // bytes of a file
	bundleLogLines = 2000    // of a container
	bundleLogs     = 50      // pods with logs
)

// newBundleCommand returns `crane bundle`.
func newBundleCommand(s Streams) *cobra.Command {
	var access clusteraccess.Access
	var namespace, output string
	cmd := &cobra.Command{
		Use:     "bundle",
		Short:   "Write a support bundle without secrets",
		Long:    bundleLong,
		Args:    noArgs,
		Example: "  crane bundle\n  crane bundle --file - | tar -tz",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := access.ObjectClient()
			if err != nil {
				return err
			}

			clients, _, err := access.Clientset()
			if err != nil {
				return err
			}

			b := &bundle{
				client:    c,
				logs:      podLogs(clients),
				namespace: namespace,
				now:       time.Now(),
			}

			return writeBundle(cmd.Context(), s, b, output)
		},
	}

	addKubernetesFlags(cmd.Flags(), &access)
	cmd.Flags().StringVar(&namespace, "craned-namespace", "crane-system", "namespace of craned")
	cmd.Flags().StringVarP(&output, "file", "f", "crane-bundle.tar.gz", "file to write, which must not exist; - for the standard output")

	return cmd
}

// writeBundle writes a bundle to a new file that only its owner can read, or to the standard output.
func writeBundle(ctx context.Context, s Streams, b *bundle, output string) (err error) {
	out := termtext.Raw(s.Out) // A compressed file is not text.
	if output != "-" {
		file, openErr := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if openErr != nil {
			return fmt.Errorf("creating the bundle: %w", openErr)
		}
		defer func() { err = errors.Join(err, file.Close()) }()

		out = file
	}

	b.collect(ctx)
	if err := b.write(out); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}

	if output != "-" {
		_, err = termtext.Fprintf(s.Out, "wrote %d files to %s; %d could not be read (errors.txt)\n", len(b.files), output, len(b.failed))
	}

	return err
}

// logReader returns the last lines of the log of a container.
type logReader func(ctx context.Context, pod *corev1.Pod, container string) ([]byte, error)

func podLogs(clients kubernetes.Interface) logReader {
	return func(ctx context.Context, pod *corev1.Pod, container string) ([]byte, error) {
		lines := int64(bundleLogLines)
		size := int64(bundleFile)
		return clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
			Container:  container,
			TailLines:  &lines,
			LimitBytes: &size,
			Timestamps: true,
		}).DoRaw(ctx)
	}
}

// bundle collects the files of a support bundle.
type bundle struct {
	client    client.Client
	logs      logReader
	namespace string
	now       time.Time

	files  []bundleEntry
	failed []string
}

type bundleEntry struct {
	name    string
	content []byte
}

// add adds a file without what redact removes.
func (b *bundle) add(name string, content []byte) {
	if len(content) > bundleFile {
		content = append(content[:bundleFile:bundleFile], "\n(cut off)\n"...)
	}
	b.files = append(b.files, bundleEntry{name, redact(content)})
}

func (b *bundle) fail(what string, err error) {
	b.failed = append(b.failed, fmt.Sprintf("%s: %v", what, err))
}

// bundleKind is a kind whose objects are part of a bundle: of all namespaces, or of craned's.
type bundleKind struct {
	group, version, kind string
	ownNamespace         bool
}

// bundleKinds returns the kinds of a bundle. Secret is not one of them.
func bundleKinds() []bundleKind {
	crane := func(group string, kinds ...string) []bundleKind {
		var out []bundleKind
		for _, kind := range kinds {
			out = append(out, bundleKind{group: group + ".crane.io", version: "v1alpha1", kind: kind})
		}

		return out
	}

	out := crane("analysis", "RecommendationRule", "Recommendation", "Analytics", "ConfigSet")
	out = append(out, crane("autoscaling", "EffectiveHorizontalPodAutoscaler", "EffectiveVerticalPodAutoscaler", "Substitute")...)
	out = append(out, crane("prediction", "TimeSeriesPrediction", "ClusterNodePrediction")...)
	out = append(out, crane("ensurance", "NodeQOS", "PodQOS", "AvoidanceAction")...)
	out = append(out, crane("topology", "NodeResourceTopology")...)

	return append(out,
		bundleKind{"apps", "v1", "Deployment", true}, bundleKind{"apps", "v1", "DaemonSet", true}, bundleKind{"", "v1", "Pod", true},
		bundleKind{"", "v1", "ConfigMap", true}, bundleKind{"", "v1", "Event", true}, bundleKind{"coordination.k8s.io", "v1", "Lease", true},
		bundleKind{"apiregistration.k8s.io", "v1", "APIService", false},
	)
}

// collect reads everything. What fails is recorded and left out.
func (b *bundle) collect(ctx context.Context) {
	b.add("version.txt", []byte("crane "+version.Long()+"\n"+b.now.UTC().Format(time.RFC3339)+"\n"))
	checks, err := installation.Read(ctx, b.client, b.namespace, b.now)
	var text bytes.Buffer
	if err == nil {
		err = renderDoctorTable(&text, checks)
	}
	if err != nil {
		b.fail("status", err)
	}

	b.add("status.txt", text.Bytes())
	for _, kind := range bundleKinds() {
		b.addObjects(ctx, kind)
	}

	b.addLogs(ctx)
	b.add("errors.txt", []byte(strings.Join(b.failed, "\n")+"\n"))
}

func (b *bundle) addObjects(ctx context.Context, kind bundleKind) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.group, Version: kind.version, Kind: kind.kind + "List"})

	options := []client.ListOption{client.Limit(bundleObjects)}
	if kind.ownNamespace {
		options = append(options, client.InNamespace(b.namespace))
	}

	if err := b.client.List(ctx, list, options...); err != nil {
		b.fail(kind.kind, err)
		return
	}

	var text bytes.Buffer
	for i := range list.Items {
		// Secrets may be in annotations and in environment variables of any object.
		redactObject(&list.Items[i])
		content, err := yaml.Marshal(list.Items[i].Object)
		if err != nil {
			b.fail(kind.kind, err)
			continue
		}

		termtext.Fprintf(&text, "---\n%s", termtext.Trusted(content))
	}

	if list.GetContinue() != "" {
		termtext.Fprintf(&text, "# only the first %d objects\n", bundleObjects)
	}
	b.add("objects/"+strings.ToLower(kind.kind)+".yaml", text.Bytes())
}

func (b *bundle) addLogs(ctx context.Context) {
	var pods corev1.PodList
	if err := b.client.List(ctx, &pods, client.InNamespace(b.namespace), client.MatchingLabelsSelector{Selector: installation.ComponentSelector()}); err != nil {
		b.fail("logs", err)
		return
	}

	for i := range pods.Items[:min(len(pods.Items), bundleLogs)] {
		pod := &pods.Items[i]
		for _, c := range pod.Spec.Containers {
			content, err := b.logs(ctx, pod, c.Name)
			if err != nil {
				b.fail("log of "+pod.Name, err)
				continue
			}

			b.add("logs/"+pod.Name+"/"+c.Name+".log", content)
		}
	}
}

// write writes the files as a compressed tar file.
func (b *bundle) write(w io.Writer) error {
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	for _, f := range b.files {
		header := &tar.Header{
			Name:    "crane-bundle/" + f.name,
			Mode:    0o600,
			Size:    int64(len(f.content)),
			ModTime: b.now,
		}

		if err := archive.WriteHeader(header); err != nil {
			return err
		}

		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}

	return errors.Join(archive.Close(), compressed.Close())
}
