package page

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// ReadBody reads the body of r, of at most most bytes; the error about a larger one is an
// *http.MaxBytesError. One that says that it is larger is not waited for.
func ReadBody(rw http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength > most {
		return nil, &http.MaxBytesError{Limit: most}
	}
	return io.ReadAll(http.MaxBytesReader(rw, r.Body, most))
}

// ProtoJSONFault is what an error of package protojson says, without its "proto:" and the blank
// after that, which is another one from build to build.
func ProtoJSONFault(err error) string {
	return strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
}

// JSON answers with v.
func JSON(rw http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	Body(rw, status, b)
}

var lineEnd = []byte{'\n'}

// Body answers with JSON, and a line's end.
func Body(rw http.ResponseWriter, status int, b []byte) {
	if h := rw.Header(); h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	begin(rw, status, len(b)+1)
	rw.Write(b)
	rw.Write(lineEnd) // not appended to b, which may be long
}

// Text answers with a text, and no byte beside it.
func Text(rw http.ResponseWriter, status int, text string) {
	begin(rw, status, len(text))
	io.WriteString(rw, text)
}

// begin writes the head of an answer with so many bytes, which nothing keeps.
func begin(rw http.ResponseWriter, status, length int) {
	h := rw.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(length))
	rw.WriteHeader(status)
}
