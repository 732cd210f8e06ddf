package page

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// JSON answers with v.
func JSON(rw http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	Body(rw, status, b)
}

// Body answers with JSON, and a line's end.
func Body(rw http.ResponseWriter, status int, b []byte) {
	h := rw.Header()
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(b)+1))
	rw.WriteHeader(status)
	rw.Write(append(b, '\n'))
}
