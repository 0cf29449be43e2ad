// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package qosinitializer adds an init container and a volume to new pods whose PodQOS has a low CPU priority, as gocrane's
// QOSInitializer does; a node's own tools then prepare the cgroups of batch work.
package qosinitializer

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

// Kind is the kind of the file, whose apiVersion is that of group ensurance.crane.io.
const Kind = "QOSConfig"

// Config selects pods and has the init container and the volume for them. The zero value adds nothing.
type Config struct {
	enabled       bool
	selector      labels.Selector
	initContainer corev1.Container
	volume        corev1.Volume
}

// fileFormat is gocrane's format.
type fileFormat struct {
	metav1.TypeMeta `json:",inline"`

	QOSInitializer struct {
		Enable                bool                  `json:"enable,omitempty"`
		Selector              *metav1.LabelSelector `json:"selector,omitempty"`
		InitContainerTemplate *corev1.Container     `json:"initContainerTemplate,omitempty"`
		VolumeTemplate        *corev1.Volume        `json:"volumeTemplate,omitempty"`
		// ScopeSelector has no effect in gocrane; a file that has one is still accepted.
		ScopeSelector *ensurancev1alpha1.ScopeSelector `json:"scopeSelector,omitempty"`
	} `json:"qosInitializer"`
}

// Parse decodes a file of kind QOSConfig; an unknown field is an error. If the initializer is enabled, its selector, init
// container and volume are required.
func Parse(data []byte) (Config, error) {
	var f fileFormat
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return Config{}, fmt.Errorf("%s: %w", Kind, err)
	}

	if want := ensurancev1alpha1.GroupVersion.String(); f.Kind != Kind || f.APIVersion != want {
		return Config{}, fmt.Errorf("%s: apiVersion %q, kind %q: want %s, %s", Kind, f.APIVersion, f.Kind, want, Kind)
	}

	q := f.QOSInitializer
	if !q.Enable {
		return Config{}, nil
	}

	// All missing parts are reported together.
	var errs []error
	need := func(ok bool, field string) {
		if !ok {
			errs = append(errs, fmt.Errorf("qosInitializer.%s is needed", field))
		}
	}

	need(q.Selector != nil, "selector")
	need(q.InitContainerTemplate != nil && q.InitContainerTemplate.Name != "" && q.InitContainerTemplate.Image != "",
		"initContainerTemplate with a name and an image")
	need(q.VolumeTemplate != nil && q.VolumeTemplate.Name != "", "volumeTemplate with a name")

	selector, err := metav1.LabelSelectorAsSelector(q.Selector)
	if err != nil {
		errs = append(errs, fmt.Errorf("qosInitializer.selector: %w", err))
	}

	if err := errors.Join(errs...); err != nil {
		return Config{}, fmt.Errorf("%s: %w", Kind, err)
	}

	return Config{
		enabled:       true,
		selector:      selector,
		initContainer: *q.InitContainerTemplate,
		volume:        *q.VolumeTemplate,
	}, nil
}
