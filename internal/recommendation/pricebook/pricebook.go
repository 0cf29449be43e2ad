// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pricebook reads price books from YAML files and embeds the default one, so that craned and the command line read
// the same files. The content of a price book belongs to pkg/cost.
package pricebook

import (
	"embed"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"

	"crane.io/crane/pkg/cost"
)

// defaultFile holds default.yaml.
//
//go:embed default.yaml
var defaultFile embed.FS

// maxFile bounds the size of a price book; typical ones have a few kilobytes.
const maxFile = 1 << 20

// Default returns the built-in price book. The file names the source of its figures.
func Default() (*cost.PriceBook, error) {
	content, err := defaultFile.ReadFile("default.yaml")
	if err != nil {
		return nil, fmt.Errorf("built-in price book: %w", err)
	}

	return parse("built-in price book", content)
}

// Load reads a price book in YAML or JSON; an empty path returns the default. Errors name the file and the paths of invalid
// fields.
func Load(path string) (*cost.PriceBook, error) {
	if path == "" {
		return Default()
	}

	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("price book: %w", err)
	}

	if info.IsDir() {
		return nil, fmt.Errorf("price book: %s is a directory", path)
	}

	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("price book: %w", err)
	}
	defer f.Close()

	// One byte more than is allowed shows that a file is too large.
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("price book %s: %w", path, err)
	}

	if len(content) > maxFile {
		return nil, fmt.Errorf("price book %s: it is larger than %d bytes", path, maxFile)
	}

	return parse("price book "+path, content)
}

func parse(name string, content []byte) (*cost.PriceBook, error) {
	data, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	book, err := cost.ParsePriceBook(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	return book, nil
}
