package client

import (
	"io"
	"net/http"
	"strconv"
	"time"
)

// Transport is an http.RoundTripper for programs that call rate-limited servers. After an answer
// 429 or 503 with a Retry-After, it waits and sends the request again, if the context's deadline
// leaves time for that and the body can be sent again. Otherwise it returns the answer at once,
// unchanged.
type Transport struct {
	Base http.RoundTripper // default: http.DefaultTransport
	// Retries is how often a request is sent again. Default: 3; below zero: never.
	Retries int
	// MaxWait is the longest Retry-After that is waited for. Default: a minute.
	MaxWait time.Duration
}

// maxDrain is how much of an answer is read so that its connection can be used again.
const maxDrain = 64 << 10

// RoundTrip sends r, and perhaps sends it again.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base, retries, longest := t.Base, t.Retries, t.MaxWait
	if base == nil {
		base = http.DefaultTransport
	}
	if retries == 0 {
		retries = 3
	}
	if longest == 0 {
		longest = time.Minute
	}
	for sent := 0; ; sent++ {
		answer, err := base.RoundTrip(r)
		if err != nil || sent >= retries {
			return answer, err
		}
		wait, told := retryAfter(answer)
		if deadline, limited := r.Context().Deadline(); !told || wait > longest || limited &&
			time.Until(deadline) < wait {
			return answer, nil
		}
		again := copyOf(r)
		if again == nil {
			return answer, nil
		}
		io.CopyN(io.Discard, answer.Body, maxDrain)
		answer.Body.Close()
		if err := sleep(r.Context(), wait); err != nil {
			if again.Body != nil {
				again.Body.Close()
			}
			return nil, err
		}
		r = again
	}
}

// copyOf is r with a body that can be read once more; nil if there is none.
func copyOf(r *http.Request) *http.Request {
	again := r.Clone(r.Context())
	if r.Body == nil || r.Body == http.NoBody {
		return again
	}
	if r.GetBody == nil {
		return nil
	}
	var err error
	if again.Body, err = r.GetBody(); err != nil {
		return nil
	}
	return again
}

// retryAfter is how long an answer asks to wait: RFC 9110, 10.2.3, seconds or a date.
func retryAfter(answer *http.Response) (wait time.Duration, told bool) {
	if answer.StatusCode != http.StatusTooManyRequests &&
		answer.StatusCode != http.StatusServiceUnavailable {
		return 0, false
	}
	text := answer.Header.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at)), true
	}
	return 0, false
}
