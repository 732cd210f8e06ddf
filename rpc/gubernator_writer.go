package rpc

import (
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/proto/gubernator"
)

// answerWriter writes answers of Gubernator's API.
type answerWriter struct{ hotWriter }

// rateLimits writes m.
func (w *answerWriter) rateLimits(m *gubernator.GetRateLimitsResp) {
	var shared sharedMetadata
	for _, r := range m.Responses {
		if r == nil {
			w.unforeseen = true
			return
		}
		at := w.open(1)
		w.number(1, int64(r.Status))
		w.number(2, r.Limit)
		w.number(3, r.Remaining)
		w.number(4, r.ResetTime)
		w.text(5, r.Error)
		if len(r.Metadata) > 0 {
			w.sharedMetadata(&shared, r.Metadata)
		}
		w.close(at)
	}
}

// sharedMetadata are the metadata that a message had last, and how they were written: most
// responses share theirs with others.
type sharedMetadata struct {
	next  int // the place that the next ones take
	known [4]struct {
		id      uintptr
		space   [64]byte
		written []byte
	}
}

func (w *answerWriter) sharedMetadata(s *sharedMetadata, m map[string]string) {
	id := reflect.ValueOf(m).Pointer()
	for i := range s.known {
		if k := &s.known[i]; k.id == id {
			w.b = append(w.b, k.written...)
			return
		}
	}
	from := len(w.b)
	w.metadata(6, m)
	k := &s.known[s.next%len(s.known)]
	k.id, k.written = id, append(k.space[:0], w.b[from:]...)
	s.next++
}

func (w *answerWriter) metadata(field protowire.Number, m map[string]string) {
	for k, v := range m {
		w.unforeseen = w.unforeseen || k == "" || v == "" // which stand in a map as well
		at := w.open(field)
		w.text(1, k)
		w.text(2, v)
		w.close(at)
	}
}

// setHit sets a number of a request, and reports whether it is known.
func setHit(to *gubernator.RateLimitReq, field protowire.Number, v uint64) bool {
	switch field {
	case 3:
		to.Hits = int64(v)
	case 4:
		to.Limit = int64(v)
	case 5:
		to.Duration = int64(v)
	case 6:
		to.Algorithm = gubernator.Algorithm(v)
	case 7:
		to.Behavior = gubernator.Behavior(v)
	case 8:
		to.Burst = int64(v)
	case 10:
		to.CreatedAt = new(int64(v))
	default:
		return false
	}
	return true
}
