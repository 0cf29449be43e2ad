// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package baselines

import (
	"reflect"
	"testing"

	"github.com/go-logr/logr"
)

// TestRecordedFile checks that the baselines which the agent of commit 2fe0246b wrote are read.
func TestRecordedFile(t *testing.T) {
	list, err := New(Config{Path: "testdata/baselines-v1-2fe0246b.json", BootID: "one", Log: logr.Discard()}).Load(now())
	if err != nil || !reflect.DeepEqual(list, learned()) {
		t.Errorf("Load = %+v, %v, want %+v", list, err, learned())
	}
}
