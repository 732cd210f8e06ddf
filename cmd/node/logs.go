package main

import (
	"io"
	"log/slog"
)

// newLogger writes text for people at a terminal and JSON for everything else.
func newLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
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
