// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Folders and files of an export.
const (
	// importFolder has what another cluster with Crane imports: objects of users, without what a server sets. kubectl applies its folders in their
	// order: namespaces first.
	importFolder     = "import"
	namespacesFolder = "1-namespaces"
	objectsFolder    = "2-objects"
	// backupFolder has every object as the server stores it.
	backupFolder = "backup"
	// valuesFile has gocrane's configuration as values of Crane's chart.
	valuesFile = "values.yaml"
)

// Exported is what an export has written.
type Exported struct {
	// Backup and Import are the numbers of objects in the folders; namespaces are not counted.
	Backup, Import int
	// Held are the EffectiveVerticalPodAutoscalers that are Off in the folder import, because gocrane ignored their mode.
	Held []string
}

// importable reports whether an object is of a user, so that a new cluster needs it. What controllers make is made there anew.
func (i Item) importable() bool {
	if !slices.Contains(gocraneGroups(), i.group()) || i.object.GetLabels()[labelManagedBy] == ehpaManager {
		return false
	}

	switch i.Kind {
	case "Substitute", "NodeResourceTopology", "CustomResourceDefinition", "Recommendation":
		return false
	case "TimeSeriesPrediction":
		return !strings.HasPrefix(i.Name, "noderesource-")
	}

	return true
}

// Export writes the objects of an inventory to a directory, which must be empty or not exist. EffectiveVerticalPodAutoscalers that Crane would act on are
// Off in the folder import, unless o.EVPA is act. Files are only readable for their owner, because Secrets are among them; tokens are not.
func Export(inv *Inventory, dir string, o Options) (out Exported, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}

	if len(entries) > 0 {
		return out, fmt.Errorf("directory %s is not empty", dir)
	}

	imports := filepath.Join(dir, importFolder)
	for _, item := range inv.Items {
		if isToken(item.object) {
			continue
		}

		if err := writeObject(filepath.Join(dir, backupFolder, fileName(item.Ref)), item.object); err != nil {
			return out, err
		}

		out.Backup++
		if !item.importable() {
			continue
		}

		// Crane would resize and evict pods as soon as such an object is applied.
		object := portable(item.object)
		if item.Kind == evpaKindName && actsAtOnce(object) && o.EVPA != EVPAAct {
			out.Held = append(out.Held, item.String())
			if err := unstructured.SetNestedField(object.Object, "Off", updateModePath()...); err != nil {
				return out, fmt.Errorf("exporting %s: %w", item.Ref, err)
			}
		}

		if err := writeImport(imports, object); err != nil {
			return out, err
		}

		out.Import++
	}

	values, err := translate(inv).HelmValues(o)
	if err != nil {
		return out, fmt.Errorf("translating the configuration: %w", err)
	}

	return out, os.WriteFile(filepath.Join(dir, valuesFile), values, 0o600)
}

// writeImport writes an object and its namespace, which another cluster may lack.
func writeImport(dir string, o *Object) error {
	if name := o.GetNamespace(); name != "" {
		namespace := (Ref{APIVersion: "v1", Kind: "Namespace"}).empty()
		namespace.SetName(name)

		if err := writeObject(filepath.Join(dir, namespacesFolder, name+".yaml"), namespace); err != nil {
			return err
		}
	}

	return writeObject(filepath.Join(dir, objectsFolder, fileName(RefOf(o))), o)
}

// fileName returns the path of an object below a folder. Names of objects have no separators.
func fileName(r Ref) string {
	namespace := r.Namespace
	if namespace == "" {
		namespace = "_cluster"
	}

	return filepath.Join(namespace, strings.ToLower(r.Kind)+"-"+strings.ReplaceAll(r.Name, ":", "_")+".yaml")
}

func writeObject(path string, o *Object) error {
	content, err := yaml.Marshal(o.Object)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}

	if err != nil {
		return fmt.Errorf("exporting %s: %w", RefOf(o), err)
	}

	return nil
}

// portable returns a copy of an object without what a server sets, and without owners, which another cluster does not have.
func portable(o *Object) *Object {
	out := stripped(o)
	unstructured.RemoveNestedField(out.Object, "status")
	out.SetOwnerReferences(nil)
	out.SetFinalizers(nil)

	return out
}

// stripped returns a copy of an object that can be created: without the fields of the metadata that a server sets.
func stripped(o *Object) *Object {
	out := o.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}

	return out
}
