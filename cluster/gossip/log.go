package gossip

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// linesPerSecond is how many lines of the library are passed on at most: any machine that can reach
// the gossip port can make the library write one per packet.
const linesPerSecond = 10

// longestLine is how many bytes of a line are passed on at most: it may have a name in it that
// somebody else has made up.
const longestLine = 512

// libraryLog passes on what memberlist writes, as lines of the form "[LEVEL] memberlist: text".
type libraryLog struct {
	to *slog.Logger

	mu      sync.Mutex // guards what follows
	second  time.Time  // when the present second began
	lines   int        // passed on in it
	dropped int        // since the last line that was passed on
}

func (l *libraryLog) Write(line []byte) (int, error) {
	level, text := parseLine(string(line))
	if !l.to.Enabled(context.Background(), level) {
		return len(line), nil
	}
	l.mu.Lock()
	if now := time.Now(); now.Sub(l.second) >= time.Second {
		l.second, l.lines = now, 0
	}
	l.lines++
	if l.lines > linesPerSecond {
		l.dropped++
		l.mu.Unlock()
		return len(line), nil
	}
	dropped := l.dropped
	l.dropped = 0
	l.mu.Unlock()

	if len(text) > longestLine {
		text = strings.ToValidUTF8(text[:longestLine], "") + "…"
	}
	if dropped > 0 {
		l.to.Warn("too many lines from memberlist", "dropped", dropped)
	}
	l.to.Log(context.Background(), level, text, "from", "memberlist")
	return len(line), nil
}

func parseLine(line string) (slog.Level, string) {
	line = strings.TrimSpace(line)
	level := slog.LevelWarn // a few lines have no level; they tell of trouble
	if tag, rest, ok := strings.Cut(line, "] "); ok && strings.HasPrefix(tag, "[") {
		line = rest
		switch tag[1:] {
		case "DEBUG":
			level = slog.LevelDebug
		case "INFO":
			level = slog.LevelInfo
		case "ERR", "ERROR":
			level = slog.LevelError
		}
	}
	return level, strings.TrimPrefix(line, "memberlist: ")
}
