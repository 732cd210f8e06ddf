package catalog

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strings"
	"testing"
)

// sealed is a file with this text below its title.
func sealed(body string) []byte {
	return fmt.Appendf(nil, "%s%08x\n%s", fileTitle, crc32.Checksum([]byte(body), castagnoli), body)
}

// Promise: whatever stands in the file of limits that were put, it is entries that write keeps as
// they are, or an error that names the file.
func FuzzFile(f *testing.F) {
	const entry = `{"name":"login","version":"12@n1","base":"none","by":"ops",` +
		`"at_ms":1764032400000,"limit":{"algorithm":"gcra","limit":10,"per":"1m"}}`
	for _, body := range []string{
		entry + "\n", entry + "\n" + entry, "", "\n", "{}\n", entry[:40],
		strings.Replace(entry, "12@n1", "0@", 1), strings.Replace(entry, "login", "", 1),
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		list, err := parse("FILE", sealed(body))
		if err != nil {
			if !strings.Contains(err.Error(), "FILE") {
				t.Errorf("%q: an error without the file: %v", body, err)
			}
			return
		}
		var before, after uint64
		for i := range list {
			before += list[i].hash()
		}
		again, err := parse("FILE", sealed(lines(t, list)))
		for i := range again {
			after += again[i].hash()
		}
		if err != nil || len(again) != len(list) || after != before {
			t.Errorf("%q: %d entries became %d, %v", body, len(list), len(again), err)
		}
	})
}

// lines is what write has below the title of a file.
func lines(t *testing.T, list []Entry) string {
	t.Helper()
	var body strings.Builder
	for i := range list {
		if err := encode(&body, &list[i]); err != nil {
			t.Fatal(err)
		}
	}
	return body.String()
}

// Promise: a file that is not of this program, or damaged, is an error that says what to do.
func TestForeignFileOfLimits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits")
	if list, err := read(file); list != nil || err != nil {
		t.Errorf("no file: %v, %v", list, err)
	}
	if _, err := parse(file, []byte("limits: []\n")); err == nil ||
		!strings.Contains(err.Error(), "move it away") {
		t.Errorf("another file: %v", err)
	}
}

// Promise: whatever another node says of the log, the answer is a message of the log or an error.
// A message is merged, so that the same one once more changes nothing, and the log can be written
// and read.
func FuzzAnswer(f *testing.F) {
	const entry = `{"name":"login","version":"12@n1","base":"none","by":"ops",` +
		`"at_ms":1764032400000,"limit":{"algorithm":"gcra","limit":10,"per":"1m"}}`
	for _, text := range []string{
		`{}`, `{"hashes":""}`, `{"hashes":"AAAA"}`, `{"entries":[]}`, `null`, `[`,
		`{"entries":[` + entry + `]}`, `{"entries":[` + entry + `,` + entry + `]}`,
		`{"entries":[` + strings.Replace(entry, "12@n1", "13@n2", 1) + `]}`,
		`{"entries":[` + strings.Replace(entry, "none", "12@n1", 1) + `]}`,
		`{"entries":[` + strings.Replace(entry, "gcra", "no such", 1) + `]}`,
		`{"entries":[{"name":"login"}]}`,
	} {
		f.Add([]byte(text), false)
	}
	hashes, err := json.Marshal(message{Hashes: writeHashes([parts]uint64{3: 1})})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(hashes, true)
	f.Fuzz(func(t *testing.T, text []byte, agent bool) {
		c := newWorld(t, "n1").catalogs["n1"]
		before := c.log.Hashes()
		out, err := c.Answer(text, agent)
		after := c.log.Hashes()
		var said message
		if err == nil {
			err = json.Unmarshal(out, &said)
			if err != nil {
				t.Fatalf("%q is answered by %q: %v", text, out, err)
			}
		}
		if agent && after != before {
			t.Fatalf("an agent has changed the log by %q", text)
		}
		if _, err := c.Answer(text, agent); err == nil && c.log.Hashes() != after {
			t.Fatalf("%q changes the log twice", text)
		}
		list := c.log.Parts(func(int) bool { return true })
		again, err := parse("FILE", sealed(lines(t, list)))
		if err != nil || len(again) != len(list) {
			t.Fatalf("%q: a log of %d entries is read as %d, %v", text, len(list), len(again), err)
		}
	})
}
