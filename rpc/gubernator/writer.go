package gubernator

import (
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/proto/gubernator"
	"penstock/rpc/wire"
)

// answerWriter writes answers of Gubernator's API.
type answerWriter struct{ wire.Writer }

// rateLimits writes m.
func (w *answerWriter) rateLimits(m *gubernator.GetRateLimitsResp) {
	var shared sharedMetadata
	for _, r := range m.Responses {
		if r == nil {
			w.Unforeseen = true
			return
		}
		at := w.Open(1)
		w.Number(1, int64(r.Status))
		w.Number(2, r.Limit)
		w.Number(3, r.Remaining)
		w.Number(4, r.ResetTime)
		w.Text(5, r.Error)
		if len(r.Metadata) > 0 {
			w.sharedMetadata(&shared, r.Metadata)
		}
		w.Close(at)
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
			w.B = append(w.B, k.written...)
			return
		}
	}
	from := len(w.B)
	w.metadata(6, m)
	k := &s.known[s.next%len(s.known)]
	k.id, k.written = id, append(k.space[:0], w.B[from:]...)
	s.next++
}

func (w *answerWriter) metadata(field protowire.Number, m map[string]string) {
	for k, v := range m {
		w.Unforeseen = w.Unforeseen || k == "" || v == "" // which stand in a map as well
		at := w.Open(field)
		w.Text(1, k)
		w.Text(2, v)
		w.Close(at)
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
