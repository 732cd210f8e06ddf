package catalog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// The file of a log begins with a title and the checksum of the rest, which is one entry a line:
//
//	penstock limits 1 8c1f3a90
//	{"name":"login","version":"12@n1","base":"none","by":"ops","at_ms":1764032400000,"limit":{…}}
const fileTitle = "penstock limits 1 "

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// write replaces the file by one with these entries, so that a reader sees the old or the new one.
func write(file string, entries []Entry) error {
	var body bytes.Buffer
	for i := range entries {
		if err := encode(&body, &entries[i]); err != nil {
			return err
		}
	}
	fresh, err := os.OpenFile(file+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	sum := crc32.Checksum(body.Bytes(), castagnoli)
	_, err = fmt.Fprintf(fresh, "%s%08x\n%s", fileTitle, sum, body.Bytes())
	if err == nil {
		err = fresh.Sync()
	}
	if err = errors.Join(err, fresh.Close()); err == nil {
		err = os.Rename(fresh.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(fresh.Name()))
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	_ = dir.Sync() // not all file systems know it
	return dir.Close()
}

func encode(w io.Writer, e *Entry) error { return json.NewEncoder(w).Encode(e) }

// read is what write has written; none if there is no file. A damaged file is an error: a log that
// is read in part would bring limits back that were deleted.
func read(file string) ([]Entry, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parse(file, text)
}

// parse reads the text of a file.
func parse(file string, text []byte) ([]Entry, error) {
	title, body, _ := bytes.Cut(text, []byte("\n"))
	if string(title) != fmt.Sprintf("%s%08x", fileTitle, crc32.Checksum(body, castagnoli)) {
		return nil, fmt.Errorf("%s is damaged, or not of this program: its first line is %.40q; "+
			"move it away, and the node gets the limits from the other nodes", file, title)
	}
	var list []Entry
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 4*MaxLimit)
	for lines.Scan() {
		var e Entry
		err := json.Unmarshal(lines.Bytes(), &e)
		if err == nil {
			err = e.check()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", file, len(list)+2, err)
		}
		list = append(list, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: line %d: %w", file, len(list)+2, err)
	}
	return list, nil
}

// savedLocked notes whether the file has all of the log.
func (c *Catalog) savedLocked(all bool) {
	if c.unsaved.Swap(!all) && all {
		c.Logger.Info("limits that were put are saved again", "file", c.File)
	}
}
