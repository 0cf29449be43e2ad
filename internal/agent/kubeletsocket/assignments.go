// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletsocket

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"crane.io/crane/pkg/numa"
)

const (
	// Path is the path of the socket below the kubelet's directory. The kubelet creates it at each start.
	Path = "pod-resources/kubelet.sock"
	// queryTimeout bounds the queries of one read. The kubelet answers from memory.
	queryTimeout = 5 * time.Second
	// maxAnswerBytes limits one answer: 500 pods with some devices take less than 1 MiB.
	maxAnswerBytes = 16 << 20
)

// Assignments are what the kubelet's managers of CPUs and memory assign to containers.
type Assignments struct {
	// StaticCPUs and StaticMemory report whether these managers assign at all, as with the policy static.
	StaticCPUs, StaticMemory bool
	// CPUs belong to single containers or pods.
	CPUs numa.CPUSet
}

// Source returns the assignments, or an error if they are unknown. The error is fs.ErrNotExist if there is no kubelet.
type Source func() (Assignments, error)

// Read queries the kubelet at a socket. It returns fs.ErrNotExist if there is no directory for the socket, and so no kubelet; a kubelet that does
// not answer is another error.
func Read(ctx context.Context, socket string) (Assignments, error) {
	_, err := os.Stat(filepath.Dir(socket))
	if err != nil {
		return Assignments{}, fmt.Errorf("the kubelet's socket: %w", err)
	}

	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)))
	if err != nil {
		return Assignments{}, fmt.Errorf("connecting to the kubelet's socket: %w", err)
	}
	defer func() { _ = conn.Close() }()

	queryCtx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()

	client := podresources.NewPodResourcesListerClient(conn)
	allocatable, err := client.GetAllocatableResources(queryCtx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return Assignments{}, fmt.Errorf("reading the allocatable resources from the kubelet's socket: %w", err)
	}

	list, err := client.List(queryCtx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return Assignments{}, fmt.Errorf("reading the resources of pods from the kubelet's socket: %w", err)
	}

	return convert(allocatable, list)
}

// convert returns the assignments in two answers. A manager with the policy none reports nothing allocatable.
func convert(allocatable *podresources.AllocatableResourcesResponse, list *podresources.ListPodResourcesResponse) (Assignments, error) {
	out := Assignments{
		StaticCPUs:   len(allocatable.GetCpuIds()) > 0,
		StaticMemory: len(allocatable.GetMemory()) > 0,
	}

	var cpus []int
	for _, pod := range list.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, id := range container.GetCpuIds() {
				if id < 0 || id > numa.MaxCPU {
					return Assignments{}, fmt.Errorf("the kubelet's socket: container %s/%s/%s has CPU %d, want 0 to %d",
						pod.GetNamespace(), pod.GetName(), container.GetName(), id, numa.MaxCPU)
				}

				cpus = append(cpus, int(id))
			}
		}
	}

	out.CPUs = numa.NewCPUSet(cpus...)
	out.StaticCPUs = out.StaticCPUs || len(cpus) > 0

	return out, nil
}
