package redis

import (
	"crypto/tls"
	"errors"
	"net"
	"time"

	"penstock/rpc/resp"
)

// wire is a connection's bytes, and how long the client may take for them.
type wire struct {
	door  *Server
	conn  net.Conn // closed by anybody
	in    []byte   // what has been read begins here
	held  int      // bytes of it
	words [][]byte // the memory of the words of a command

	readBy  time.Time // deadlines in force
	writeBy time.Time
	partial bool // readBy is for the rest of a command
}

const (
	firstBuffer = 4 << 10 // until somebody sends more at once than that
	mostBuffer  = resp.MaxCommand
)

// open shakes hands by now, if the connection has TLS. It reports whether that went well.
func (w *wire) open(now time.Time) bool {
	w.readBy = now.Add(hurry)
	w.writeBy = w.readBy
	w.conn.SetDeadline(w.readBy)
	if t, ok := w.conn.(*tls.Conn); ok && t.Handshake() != nil {
		w.door.stats.broken.Add(1)
		return false
	}
	w.in = make([]byte, firstBuffer)
	return true
}

// closeNow is for other goroutines.
func (w *wire) closeNow() {
	if t, ok := w.conn.(*tls.Conn); ok {
		t.NetConn().Close() // Close would wait for the writer
		return
	}
	w.conn.Close()
}

// read waits for bytes. A client that is not known yet has until the first deadline, whatever it
// sends.
func (w *wire) read(now time.Time, known bool) bool {
	if known {
		w.setReadDeadline(now)
	}
	if w.door.closing.Load() { // and has moved the deadline, perhaps before it was set here
		return false
	}
	n, err := w.conn.Read(w.in[w.held:])
	w.held += n
	if err != nil {
		var timeout net.Error
		if w.held > 0 && errors.As(err, &timeout) && timeout.Timeout() && !w.door.closing.Load() {
			w.door.stats.broken.Add(1)
		}
		return n > 0
	}
	if w.held == len(w.in) && len(w.in) < mostBuffer {
		in := make([]byte, mostBuffer)
		copy(in, w.in)
		w.in = in
	}
	return true
}

// setReadDeadline sets what is due. Deadlines cost system time, so one that is nearly right stays.
func (w *wire) setReadDeadline(now time.Time) {
	switch {
	case w.held > 0 && w.partial:
		return
	case w.held > 0:
		w.partial, w.readBy = true, now.Add(hurry)
	case w.partial || w.readBy.Sub(now) < idleTimeout:
		w.partial, w.readBy = false, now.Add(idleTimeout+idleTimeout/10)
	default:
		return
	}
	w.conn.SetReadDeadline(w.readBy)
}

// write sends replies. A client that does not read them is gone for us.
func (w *wire) write(replies []byte, now time.Time) error {
	if w.writeBy.Sub(now) < writeTimeout {
		w.writeBy = now.Add(writeTimeout + writeTimeout/2)
		w.conn.SetWriteDeadline(w.writeBy)
	}
	w.door.unread.begin(w, cap(replies))
	_, err := w.conn.Write(replies)
	w.door.unread.end(w)
	return err
}
