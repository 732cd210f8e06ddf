package page

import (
	"maps"
	"net/http"

	"penstock/rpc/door"
)

// Problem is an answer of RFC 9457, application/problem+json. Fields says where a request is wrong.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Field  string `json:"field,omitempty"`
	Right  string `json:"missing_right,omitempty"` // that the client lacks
}

// WriteProblem answers with p, by its status.
func WriteProblem(rw http.ResponseWriter, p *Problem) {
	if p.Type == "" {
		p.Type = "about:blank"
	}
	ProblemJSON(rw, p.Status, p)
}

// ProblemJSON answers with v, a problem that has further fields.
func ProblemJSON(rw http.ResponseWriter, status int, v any) {
	rw.Header().Set("Content-Type", "application/problem+json")
	JSON(rw, status, v)
}

// Fault says that nothing was decided and nothing charged.
func Fault(rw http.ResponseWriter, f door.Fault) {
	Challenge(rw.Header(), &f)
	if f.Type == door.Overloaded {
		rw.Header().Set("Retry-After", "1")
	}
	WriteProblem(rw, &Problem{
		Type: f.Type, Title: http.StatusText(f.Status), Status: f.Status, Detail: f.Text,
		Field: f.Field, Right: f.Right,
	})
}

// Prepared is Fault for a fault that is said often: what it says is made once.
func Prepared(f door.Fault) http.HandlerFunc {
	p := prepared{header: make(http.Header)}
	Fault(&p, f)
	return func(rw http.ResponseWriter, _ *http.Request) {
		maps.Copy(rw.Header(), p.header)
		rw.WriteHeader(p.status)
		rw.Write(p.body)
	}
}

// prepared is an answer that is written once, and sent many times.
type prepared struct {
	header http.Header
	status int
	body   []byte
}

func (p *prepared) Header() http.Header { return p.header }

func (p *prepared) WriteHeader(status int) { p.status = status }

func (p *prepared) Write(b []byte) (int, error) {
	p.body = append(p.body, b...)
	return len(b), nil
}

// Error says an error of Node.Check as HTTP carries it.
func Error(rw http.ResponseWriter, err error) { Fault(rw, door.Explain(err)) }
