// Package textfile reads the small files that a program is given by name: limits, tokens, keys and
// certificates. A program that runs reads them again when they change, and must not wait then for
// something else that stands in their place.
package textfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// Most is how many bytes Read reads at most.
const Most = 16 << 20

// patience is how long the end of a pipe is waited for.
const patience = time.Minute

// Read reads a file of at most Most bytes. A pipe may be given as well, as a shell makes one of
// <(command), and is read for a minute at most. Anything else, and a pipe that does not end, is an
// error that names the path.
func Read(path string) ([]byte, error) {
	return read(path, patience)
}

// Again is an error if a pipe or a device stands at a path that is to be read again while a program
// runs: what has been read of a pipe is gone, and another one may never end. A path at which
// nothing stands is for Read to tell of.
func Again(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() || info.IsDir() {
		return nil
	}
	return fmt.Errorf("%s: is a pipe or a device, which is not read again; put a file there", path)
}

func read(path string, most time.Duration) ([]byte, error) {
	// without this flag a pipe into which nobody writes is waited for here
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() && !info.IsDir() && f.SetReadDeadline(time.Now().Add(most)) != nil {
		return nil, fmt.Errorf("%s: is neither a file nor a pipe; give a file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, Most+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("%s: is a pipe that did not end within %v; "+
			"give a file", path, most)
	case err != nil:
		return nil, err
	case len(text) > Most:
		return nil, fmt.Errorf("%s: has more than %d bytes", path, Most)
	}
	return text, nil
}
