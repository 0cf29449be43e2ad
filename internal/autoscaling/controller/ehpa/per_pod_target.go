// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"errors"
	"fmt"
	"math"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/internal/kube/workload"
)

// resourcePerPodTarget is what a resource metric aims for in one pod, in cores or bytes: what its containers request times the utilisation,
// or the average value. container is empty for all of them. The error is a sentence.
func resourcePerPodTarget(t workload.Scale, name corev1.ResourceName, container string, aim autoscalingv2.MetricTarget) (resource.Quantity, error) {
	if aim.AverageValue != nil {
		return *aim.AverageValue, nil
	}
	if aim.AverageUtilization == nil {
		return resource.Quantity{}, errors.New("the target of the metric has neither averageValue nor averageUtilization")
	}
	if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
		return resource.Quantity{}, fmt.Errorf("a utilisation of %s cannot be forecast: use averageValue", name)
	}
	total, missing := 0.0, []string(nil)
	for _, c := range t.Containers {
		if c.Role == workload.Init || container != "" && c.Name != container {
			continue
		}
		request := float64(c.Requests.CPU) / 1000
		if name == corev1.ResourceMemory {
			request = float64(c.Requests.Memory)
		}
		if request <= 0 {
			missing = append(missing, c.Name)
		}
		total += request
	}
	switch {
	case len(missing) > 0:
		return resource.Quantity{}, fmt.Errorf("container %s requests no %s, of which averageUtilization is a part", strings.Join(missing, ", "), name)
	case total == 0:
		return resource.Quantity{}, fmt.Errorf("it is not known what the pods request of %s: there is no container %s", name, container)
	}
	aimed := total * float64(*aim.AverageUtilization) / 100
	if name == corev1.ResourceMemory {
		return *resource.NewQuantity(max(1, int64(math.Round(aimed))), resource.BinarySI), nil
	}
	return *resource.NewMilliQuantity(max(1, int64(math.Round(aimed*1000))), resource.DecimalSI), nil
}
