package admin

import (
	"context"
	"testing"
	"time"
)

// Promise: an answer that is cut off by its deadline is sent before it.
func TestLeaveTime(t *testing.T) {
	now := time.Now()
	ctx, cancel := context.WithDeadline(t.Context(), now.Add(4*time.Second))
	defer cancel()
	got, cancel := leaveTime(ctx, now)
	defer cancel()
	if at, limited := got.Deadline(); !limited || !at.Equal(now.Add(3*time.Second)) {
		t.Errorf("of 4 s it takes %v", at.Sub(now))
	}
	got, cancel = leaveTime(context.Background(), now)
	defer cancel()
	if _, limited := got.Deadline(); limited {
		t.Error("a caller with all the time is given less")
	}
}
