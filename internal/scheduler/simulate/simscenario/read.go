// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simscenario

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

//go:embed files/*.yaml
var files embed.FS

// ErrUnknown means that no scenario has that name.
var ErrUnknown = errors.New("no such scenario")

// Names of the scenarios that the binary carries, in order.
func Names() []string {
	paths, err := fs.Glob(files, "files/*.yaml")
	if err != nil {
		return nil
	}
	names := make([]string, len(paths))
	for i, p := range paths {
		names[i] = strings.TrimSuffix(path.Base(p), ".yaml")
	}
	return names
}

// Named returns a scenario that the binary carries. The error is ErrUnknown where there is none of that name.
func Named(name string) (*Scenario, error) {
	content, err := files.ReadFile("files/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("%w: %q; there are %s", ErrUnknown, name, strings.Join(Names(), ", "))
	}
	s, err := Parse(content)
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", name, err)
	}
	return s, nil
}

// Parse reads a scenario file, strictly: an unknown field, a field that stands twice and a value out of its range are errors
// that name the path.
func Parse(content []byte) (*Scenario, error) {
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, errors.New("the scenario file is empty")
	}
	data, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, fmt.Errorf("reading YAML: %w", err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("want a mapping of fields: %w", err)
	}
	s := &Scenario{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(tree, s, true); err != nil {
		if runtime.IsStrictDecodingError(err) {
			return nil, fmt.Errorf("reading fields: %w", err)
		}
		return nil, fmt.Errorf("reading %s: %w", invalidPath(tree, err), err)
	}
	if err := s.Validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("invalid scenario: %w", err)
	}
	return s, nil
}

// invalidPath returns the path of the value that an error is about, which the converter does not report: the first
// value without which the error differs.
func invalidPath(tree map[string]any, about error) string {
	found := "a field"
	try := func() bool {
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, &Scenario{})
		return err == nil || err.Error() != about.Error()
	}
	var search func(at any, path string) bool
	search = func(at any, path string) bool {
		switch at := at.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(at)) {
				value, below := at[key], strings.TrimPrefix(path+"."+key, ".")
				if search(value, below) {
					return true
				}
				delete(at, key)
				other := try()
				at[key] = value
				if other {
					found = below
					return true
				}
			}
		case []any:
			for i, value := range at {
				if search(value, fmt.Sprintf("%s[%d]", path, i)) {
					return true
				}
			}
		}
		return false
	}
	search(tree, "")
	return found
}
