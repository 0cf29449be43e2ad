// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

const (
	configFlag = "config"
	// maxConfigBytes is the maximum size of a configuration file; one with every flag has a twentieth of that.
	maxConfigBytes = 1 << 20
)

// ApplyFile sets the flags that the command line leaves open from the file of --config. A key of the file is the name of a flag;
// its value is that of the flag, a list for a flag with several values, and a map for feature-gates. An unknown or duplicate key,
// or one of the wrong type, is an error that names it. ApplyFile is called between parsing and Complete.
func (o *Options) ApplyFile(fs *pflag.FlagSet) error {
	if o.ConfigFile == "" {
		return nil
	}

	values, err := readConfigFile(o.ConfigFile)
	if err != nil {
		return fmt.Errorf("--%s: %w", configFlag, err)
	}

	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(values)) {
		path := field.NewPath(key)
		f := fs.Lookup(key)
		switch {
		case f == nil || f.Name != key || f.Name == "help" || f.Name == "version":
			errs = append(errs, field.Invalid(path, "", "unknown field: there is no flag --"+key))
		case key == configFlag:
			errs = append(errs, field.Forbidden(path, "a file must not name another file"))
		case f.Changed: // The command line takes precedence.
		default:
			if err := setFlag(fs, f, path, values[key]); err != nil {
				errs = append(errs, err)
			}
		}
	}

	if err := errs.ToAggregate(); err != nil {
		return fmt.Errorf("--%s %s: %w", configFlag, o.ConfigFile, err)
	}

	return nil
}

func readConfigFile(name string) (map[string]any, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}

	if info.Size() > maxConfigBytes {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", name, info.Size(), maxConfigBytes)
	}

	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}

	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	if len(bytes.TrimSpace(asJSON)) == 0 || string(asJSON) == "null" {
		return nil, nil // An empty file sets nothing.
	}

	// Numbers keep their spelling, because a flag parses them itself.
	decoder := json.NewDecoder(bytes.NewReader(asJSON))
	decoder.UseNumber()

	values := map[string]any{}
	if err := decoder.Decode(&values); err != nil {
		return nil, fmt.Errorf("%s: want a map from names of flags to values: %w", name, err)
	}

	return values, nil
}

// setFlag sets a flag as the command line does.
func setFlag(fs *pflag.FlagSet, f *pflag.Flag, path *field.Path, value any) *field.Error {
	text, err := flagText(f, path, value)
	if err != nil {
		return err
	}

	if list, ok := f.Value.(pflag.SliceValue); ok {
		if err := list.Replace(text); err != nil {
			return field.Invalid(path, strings.Join(text, ","), err.Error())
		}

		f.Changed = true
		return nil
	}

	joined := strings.Join(text, ",")
	if err := fs.Set(f.Name, joined); err != nil {
		// The error of a flag repeats its name and value; only the rest is new.
		if inner := errors.Unwrap(err); inner != nil {
			err = inner
		}

		return field.Invalid(path, joined, err.Error())
	}

	return nil
}

// flagText formats a value of the file as the command line would have it.
func flagText(f *pflag.Flag, path *field.Path, value any) ([]string, *field.Error) {
	_, isList := f.Value.(pflag.SliceValue)
	switch v := value.(type) {
	case []any:
		if !isList {
			return nil, field.TypeInvalid(path, "a list", "want one value")
		}

		out := make([]string, len(v))
		for i, element := range v {
			text, ok := scalar(element)
			if !ok {
				return nil, field.TypeInvalid(path.Index(i), element, "want a text, a number or a boolean")
			}

			out[i] = text
		}

		return out, nil

	case map[string]any: // Gates by name; the command line has name=true,name=false.
		if f.Name != "feature-gates" {
			return nil, field.TypeInvalid(path, "a map", "want a value")
		}

		var out []string
		for _, gate := range slices.Sorted(maps.Keys(v)) {
			on, ok := v[gate].(bool)
			if !ok {
				return nil, field.TypeInvalid(path.Key(gate), v[gate], "want true or false")
			}

			out = append(out, fmt.Sprintf("%s=%t", gate, on))
		}

		return out, nil

	default:
		text, ok := scalar(value)
		if !ok {
			return nil, field.TypeInvalid(path, value, "want a value")
		}

		return []string{text}, nil
	}
}

// scalar returns the text of a scalar value; null has none.
func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool, json.Number:
		return fmt.Sprint(v), true
	default:
		return "", false
	}
}
