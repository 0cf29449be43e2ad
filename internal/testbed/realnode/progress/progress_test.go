// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"crane.io/crane/internal/testbed/realnode/nodespec"
)

func TestAwait(t *testing.T) {
	for name, test := range map[string]struct{ lines, want string }{
		"done":         {`{"step":"mounted","took":1}` + "\n" + `{"step":"up","took":2}` + "\n", ""},
		"a step fails": {`{"step":"kubelet","took":1,"error":"no such file"}` + "\n", "no such file"},
		"it ends":      {`{"step":"mounted","took":1}` + "\n", `ended after step "mounted"`},
		"nonsense":     {"nonsense\n", "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()

			if _, err := writer.WriteString(test.lines); err != nil {
				t.Fatal(err)
			}

			writer.Close()
			calls := 0

			err = NewReader(reader, func(nodespec.Report) { calls++ }).Await(t.Context(), nodespec.Up)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if name == "done" && calls != 2 {
				t.Errorf("%d reports, want 2", calls)
			}
		})
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close()

	cause := errors.New("not within the bound")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)

	if err := NewReader(reader, nil).Await(ctx, nodespec.Up); !errors.Is(err, cause) {
		t.Errorf("error %v, want %v", err, cause)
	}
}
