package policy

import (
	"time"

	"penstock/limiter"
)

// week is a word of its own, because the epoch was a Thursday.
const week = "week"

const perAccepts = limiter.PerAccepts

// parsePer reads how long a window is.
func parsePer(text string) (time.Duration, error) { return limiter.ParsePer(text) }
