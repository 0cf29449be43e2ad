// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginconfig

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
)

// AddToScheme registers the arguments and their defaults in a scheme of the scheduler's configuration. The same Go
// types serve as version v1 and as the internal version, so nothing is converted. The scheduler then decodes them
// strictly: an unknown field is an error that names profile, plugin and field.
func AddToScheme(scheme *runtime.Scheme) {
	for _, version := range []string{schedulerv1.SchemeGroupVersion.Version, runtime.APIVersionInternal} {
		scheme.AddKnownTypes(schema.GroupVersion{Group: schedulerv1.GroupName, Version: version},
			&DynamicArgs{}, &NodeResourceTopologyMatchArgs{})
	}

	scheme.AddTypeDefaultingFunc(&DynamicArgs{}, func(o any) {
		if a, ok := o.(*DynamicArgs); ok {
			SetDynamicDefaults(a)
		}
	})

	scheme.AddTypeDefaultingFunc(&NodeResourceTopologyMatchArgs{}, func(o any) {
		if a, ok := o.(*NodeResourceTopologyMatchArgs); ok {
			SetNodeResourceTopologyMatchDefaults(a)
		}
	})
}

// DynamicArgsFrom returns the validated arguments of plugin Dynamic. The error names the field.
func DynamicArgsFrom(obj runtime.Object) (*DynamicArgs, error) {
	return argsFrom(obj, DynamicName, ValidateDynamicArgs)
}

// NodeResourceTopologyMatchArgsFrom returns the validated arguments of plugin NodeResourceTopologyMatch. The error
// names the field.
func NodeResourceTopologyMatchArgsFrom(obj runtime.Object) (*NodeResourceTopologyMatchArgs, error) {
	return argsFrom(obj, NodeResourceTopologyMatchName, ValidateNodeResourceTopologyMatchArgs)
}

func argsFrom[T any](obj runtime.Object, plugin string, validate func(*T) field.ErrorList) (*T, error) {
	a, ok := any(obj).(*T)
	if !ok {
		return nil, fmt.Errorf("reading the arguments of plugin %s: got %T, want %sArgs", plugin, obj, plugin)
	}

	if err := validate(a).ToAggregate(); err != nil {
		return nil, fmt.Errorf("reading the arguments of plugin %s: %w", plugin, err)
	}

	return a, nil
}
