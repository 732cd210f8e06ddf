package sim

import (
	"penstock/cluster"
)

// sent counts a message. What nodes say to each other before the traffic and after it is not part
// of the picture.
func (c *course) sent(bytes int) {
	if c == nil || c.world.now < 0 || c.world.now > c.world.plan.length {
		return
	}
	t := &c.ticks[c.tick()]
	t.Messages++
	t.Bytes += bytes
}

// askBytes and answerBytes are about what a frame between peers has: the keys, and the numbers in
// as few bytes as they need on average.
func askBytes(a *cluster.Ask) int {
	const header, perItem = 26, 22
	n := header
	for i := range a.Items {
		n += perItem + len(a.Items[i].Key)
	}
	if a.Move != nil {
		n += moveBytes(a.Move)
	}
	return n
}

// moveBytes is the same of what is said about partitions.
func moveBytes(m *cluster.Move) int {
	const header, perEntry, perMemory, perCharge, perHold = 28, 14, 48, 12, 48
	n := header + len(m.ID) +
		2*(len(m.Claim)+len(m.Begin)+len(m.End)+len(m.Lent)+len(m.Whole)+len(m.Gift)) +
		perMemory*len(m.Taken) + perHold*len(m.Holds)
	for i := range m.Entries {
		n += perEntry + len(m.Entries[i].Key) + len(m.Entries[i].State)
	}
	for i := range m.Charges {
		n += perCharge + len(m.Charges[i].Key) + len(m.Charges[i].State)
	}
	return n
}

func answerBytes(a *cluster.Answer) int {
	const header, perItem = 20, 22
	n := header + perItem*len(a.Items)
	if m := a.Move; m != nil {
		n += 8 + len(m.Standings) + 2*len(m.Refused)
	}
	return n
}
