package ownership

import (
	"testing"
	"time"
)

// Promise: to be admitted costs a message to each member from poll to poll, and not one for each
// member that answers the greeting of a candidate: all of them do.
func TestCandidateAsksEachMemberOnce(t *testing.T) {
	for seed := range seeds(10) {
		w := newWorld(seed, 3, 0)
		w.trio("a", "b", "c", "d", "e")
		last := map[string]Instant{} // when a member was asked
		asked := 0
		w.drop = func(_, to string, m Message) bool {
			if _, asks := m.(Join); asks {
				if before, again := last[to]; again && w.now < before.Add(5*time.Millisecond) {
					t.Errorf("seed %d: %s is asked again after %v", seed, to, w.now.Since(before))
				}
				last[to], asked = w.now, asked+1
			}
			return false
		}
		w.start("f", "a", "f")
		w.run(time.Second)
		if asked == 0 || len(w.node("a").s.config.Members) != 6 {
			t.Errorf("seed %d: f asked %d times: %v", seed, asked, w.node("a").s.config)
		}
	}
}
