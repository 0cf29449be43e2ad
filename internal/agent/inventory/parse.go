// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Parse reads the output of `kubectl get pods -o yaml` or -o json: a list or one pod.
func Parse(content []byte) ([]*corev1.Pod, error) {
	raw, err := yaml.YAMLToJSON(content)
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	var head metav1.TypeMeta
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	if head.Kind == "Pod" {
		var pod corev1.Pod
		err = json.Unmarshal(raw, &pod)
		return validate([]corev1.Pod{pod}, err)
	}
	if head.Kind != "List" && head.Kind != "PodList" {
		return nil, fmt.Errorf("pods: kind is %q, want List, PodList or Pod", head.Kind)
	}
	var list corev1.PodList
	err = json.Unmarshal(raw, &list)
	return validate(list.Items, err)
}

func validate(pods []corev1.Pod, err error) ([]*corev1.Pod, error) {
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	out := make([]*corev1.Pod, 0, len(pods))
	for i := range pods {
		if kind := pods[i].Kind; kind != "" && kind != "Pod" {
			return nil, fmt.Errorf("pods: items[%d] is a %s", i, kind)
		}
		if pods[i].UID == "" || pods[i].Name == "" {
			return nil, fmt.Errorf("pods: items[%d] %s/%s: %w", i, pods[i].Namespace, pods[i].Name, errors.New("must have a name and a uid"))
		}
		out = append(out, &pods[i])
	}
	return out, nil
}
