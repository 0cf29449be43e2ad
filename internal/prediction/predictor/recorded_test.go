// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"crane.io/crane/pkg/checksum"
	"crane.io/crane/pkg/forecast/registry"
)

// recordedSuffix is that of recorded files, which are compressed and encoded as text.
const recordedSuffix = ".gz.b64"

// recordedFiles returns the checkpoints of a version that older releases wrote: version 4 by its first writer, of all algorithms; version 3 by
// commit 2fe0246b and version 2 by the commit before, of auto. They are of the workload web of fakeSource, 31 minutes after the start of a
// synctest bubble.
func recordedFiles(t *testing.T, suffix string) map[string][]byte {
	t.Helper()

	paths, err := filepath.Glob("testdata/*" + suffix + recordedSuffix)
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no recorded files of %s, %v, want 1 or more", suffix, err)
	}

	out := map[string][]byte{}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()

		unzipped, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, f))
		if err != nil {
			t.Fatal(err)
		}

		content, err := io.ReadAll(unzipped)
		if err != nil {
			t.Fatal(err)
		}

		out[strings.TrimSuffix(filepath.Base(path), recordedSuffix)] = content
	}

	return out
}

// asNewer returns a checkpoint with the name and the header of the next version.
func asNewer(name string, content []byte) (newName string, newer []byte) {
	body := bytes.Clone(content[:len(content)-checksum.Size])
	binary.LittleEndian.PutUint32(body[len(storeMagic):], storeVersion+1)
	newName = strings.TrimSuffix(name, storeSuffix) + fmt.Sprintf(".v%d.ckpt", storeVersion+1)

	return newName, binary.LittleEndian.AppendUint32(body, crc32.ChecksumIEEE(body))
}

// restartOn runs a predictor of an algorithm in a directory with these files for 31 minutes, some time after the bubble of the recording
// started. It returns the forecast of the next hour, the histories that were read, and the models that were restored.
func restartOn(
	t *testing.T, algorithm, dir string, files map[string][]byte, after time.Duration,
) (values []float64, histories int, restored int64) {
	t.Helper()

	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	synctest.Test(t, func(t *testing.T) {
		time.Sleep(after)
		source := &fakeSource{use: dailyWave}
		c := DefaultConfig()
		c.Source = source

		c.StateDir = dir
		p, err := New(c)
		if err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = p.Start(ctx); close(done) }()
		request := cpuOf("web")
		request.Algorithm = algorithm
		key := p.Set("a", []Request{request})[0].Key
		time.Sleep(31 * time.Minute) // Once beyond the writing of checkpoints, which removes unknown files.
		synctest.Wait()

		all, err := p.Forecast(key, time.Hour)
		if err != nil || len(all) != 1 {
			t.Fatalf("Forecast has %d series, %v, want 1", len(all), err)
		}

		for _, q := range all[0].Values {
			values = append(values, all[0].Published(q))
		}

		histories, _ = source.reads()
		restored = p.Counts().Restored
		cancel()
		<-done
	})

	return values, histories, restored
}

// TestRecordedCheckpoints checks an upgrade: checkpoints that an older release wrote in this version are restored, with the forecast of a
// model that has read the whole history, and those of an older version are replaced after one read of the history. If it fails because the
// encoding of a model has changed, increase storeVersion and record files of the new version.
func TestRecordedCheckpoints(t *testing.T) {
	for _, algorithm := range []string{registry.Auto, registry.Percentile, registry.DSP} {
		t.Run(algorithm, func(t *testing.T) {
			want, _, _ := restartOn(t, algorithm, t.TempDir(), nil, time.Hour)
			got, histories, restored := restartOn(t, algorithm, t.TempDir(), recordedFiles(t, storeSuffix), time.Hour)
			if histories != 0 || restored != 1 {
				t.Errorf("%d histories read, %d models restored; want 0 and 1", histories, restored)
			}
			if len(got) != len(want) {
				t.Fatalf("%d values, want %d", len(got), len(want))
			}

			for i := range want {
				if math.Abs(got[i]-want[i]) > 0.05*want[i] {
					t.Fatalf("value %d is %v, a model of the whole history has %v", i, got[i], want[i])
				}
			}
		})
	}

	for _, version := range []string{"v2", "v3"} {
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			_, histories, restored := restartOn(t, registry.Auto, dir, recordedFiles(t, "."+version+".ckpt"), time.Hour)
			if histories != 1 || restored != 0 {
				t.Errorf("%d histories read, %d models restored; want 1 and 0", histories, restored)
			}

			if names := fileNames(t, dir); len(names) != 1 || !strings.HasSuffix(names[0], storeSuffix) {
				t.Errorf("the directory has %v, want one checkpoint", names)
			}
			if _, histories, restored := restartOn(t, registry.Auto, dir, nil, 2*time.Hour); histories != 0 || restored != 1 {
				t.Errorf("the next start read %d histories and restored %d models, want no history and 1 model", histories, restored)
			}
		})
	}
}

// TestDowngradedCheckpoints checks the way back: checkpoints with the number of the next version are kept unchanged and not used, however
// often this version writes its own and prunes.
func TestDowngradedCheckpoints(t *testing.T) {
	dir := t.TempDir()
	newer := map[string][]byte{}
	for name, content := range recordedFiles(t, storeSuffix) {
		name, content := asNewer(name, content)
		newer[name] = content
	}

	if _, histories, restored := restartOn(t, registry.Auto, dir, newer, time.Hour); histories != 1 || restored != 0 {
		t.Errorf("%d histories read, %d models restored; want 1 and 0", histories, restored)
	}

	for name, want := range newer {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes, want %d unchanged; %v", name, len(got), len(want), err)
		}
	}

	if names := fileNames(t, dir); len(names) != len(newer)+1 {
		t.Errorf("the directory has %v, want the files of newer versions and one checkpoint", names)
	}
}

func fileNames(t *testing.T, dir string) []string {
	t.Helper()

	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}

	return names
}
