package main

import (
	"io"
	"log/slog"
)

// logFormat is the shape of the log of a verb that runs nodes.
type logFormat struct {
	LogFormat string `default:"auto" enum:"auto,text,json" help:"text, json, or auto: text on a terminal, else json."`
}

// of is the format for a log that w shows.
func (f logFormat) of(w io.Writer) string {
	switch {
	case f.LogFormat == "text" || f.LogFormat == "json":
		return f.LogFormat
	case onTerminal(w):
		return "text"
	}
	return "json"
}

// newLogger writes text for people, or JSON.
func newLogger(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if format == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// readable writes durations with their unit. JSON would have a bare number of nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// silence is above every level.
const silence = slog.LevelError + 1

// levelOf is the level of a word that the grammar admits.
func levelOf(word string) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(word)); err != nil {
		panic(err)
	}
	return l
}
