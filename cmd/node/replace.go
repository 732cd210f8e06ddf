package main

import (
	"errors"
	"os"
	"path/filepath"
)

// replaceFile puts a text in the place of the file at path as a whole, so that a node that watches
// it never reads half of it. The owner and the mode stay: a node may run as another user than the
// person that changes its files.
func replaceFile(path, text string) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // it is gone by then, unless something has failed
	_, err = file.WriteString(text)
	err = errors.Join(err, keepOwner(file, info), file.Chmod(info.Mode().Perm()), file.Sync(),
		file.Close())
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
