// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletsocket

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	testingclock "k8s.io/utils/clock/testing"

	"crane.io/crane/pkg/numa"
)

// kubelet answers with fixed resources.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer

	allocatable *podresources.AllocatableResourcesResponse
	list        *podresources.ListPodResourcesResponse
	err         error
}

func (k *kubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	return k.allocatable, k.err
}

func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return k.list, k.err
}

// serve serves a kubelet at a socket, whose path is short enough for one.
func serve(t *testing.T, k *kubelet) string {
	t.Helper()

	dir, err := os.MkdirTemp("", "crane") //nolint:usetesting // A path of t.TempDir is too long for a socket.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })

	socket := filepath.Join(dir, Path)
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}

	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}

	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, k)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	return socket
}

func container(cpus ...int64) *podresources.PodResources {
	return &podresources.PodResources{
		Namespace: "shop", Name: "web-0",
		Containers: []*podresources.ContainerResources{{Name: "sidecar"}, {Name: "main", CpuIds: cpus}},
	}
}

// TestRead reads what kubelets with each policy answer.
func TestRead(t *testing.T) {
	cpus := &podresources.AllocatableResourcesResponse{CpuIds: []int64{1, 2, 3}}
	memory := &podresources.AllocatableResourcesResponse{Memory: []*podresources.ContainerMemory{{MemoryType: "memory", Size: 1 << 30}}}

	for _, c := range []struct {
		name        string
		allocatable *podresources.AllocatableResourcesResponse
		pods        []*podresources.PodResources
		want        Assignments
	}{
		{"policy none", &podresources.AllocatableResourcesResponse{}, []*podresources.PodResources{container()}, Assignments{}},
		{"policy static, shared CPUs", cpus, []*podresources.PodResources{container()}, Assignments{StaticCPUs: true}},
		{"policy static", cpus, []*podresources.PodResources{container(3), container(1)}, Assignments{StaticCPUs: true, CPUs: numa.NewCPUSet(1, 3)}},
		{"memory", memory, nil, Assignments{StaticMemory: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := serve(t, &kubelet{allocatable: c.allocatable, list: &podresources.ListPodResourcesResponse{PodResources: c.pods}})
			got, err := Read(t.Context(), socket)
			if err != nil {
				t.Fatalf("Read() = %v, want no error", err)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(numa.CPUSet{})); diff != "" {
				t.Errorf("Read() (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRead_Unknown checks that a kubelet that does not answer, or answers nonsense, is not the same as one that assigns nothing.
func TestRead_Unknown(t *testing.T) {
	allocatable := &podresources.AllocatableResourcesResponse{CpuIds: []int64{1}}
	answer := func(cpus ...int64) *podresources.ListPodResourcesResponse {
		return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{container(cpus...)}}
	}
	stopped := serve(t, &kubelet{})
	if err := os.Remove(stopped); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct{ socket, want string }{
		"stopped":  {stopped, "no such file"},
		"refusing": {serve(t, &kubelet{err: errors.New("starting")}), "starting"},
		"negative": {serve(t, &kubelet{allocatable: allocatable, list: answer(-1)}), "container shop/web-0/main has CPU -1"},
		"too high": {serve(t, &kubelet{allocatable: allocatable, list: answer(1 << 40)}), "has CPU 1099511627776"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(t.Context(), c.socket)
			if err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Read() = %+v, %v, want an error with %q that is not fs.ErrNotExist", got, err, c.want)
			}
		})
	}

	_, err := Read(t.Context(), filepath.Join(t.TempDir(), Path))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read() without the directory of the socket = %v, want fs.ErrNotExist", err)
	}
}

// TestWatch_Latest checks that the result is unknown before the first read and that of the last read then.
func TestWatch_Latest(t *testing.T) {
	k := &kubelet{allocatable: &podresources.AllocatableResourcesResponse{CpuIds: []int64{0, 1}}}
	socket := serve(t, k)
	clock := testingclock.NewFakeClock(time.Unix(1000, 0))
	reads := make(chan struct{})
	w := NewWatch(socket, clock, func(string) { reads <- struct{}{} })

	_, err := w.Latest()
	if !errors.Is(err, errNotRead) {
		t.Errorf("Latest() before Run = %v, want %v", err, errNotRead)
	}

	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- w.Run(ctx) }()

	<-reads
	a, err := w.Latest()
	if err != nil || !a.StaticCPUs {
		t.Errorf("Latest() = %+v, %v, want the policy static", a, err)
	}

	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	clock.Step(readInterval)

	<-reads
	_, err = w.Latest()
	if err == nil {
		t.Error("Latest() without the socket = nil, want an error")
	}

	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}
