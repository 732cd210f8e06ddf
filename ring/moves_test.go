package ring

// Move is one partition that changes its owner.
type Move struct {
	Partition int
	From, To  string // ids; "" if there is no ring on that side
}

// Moves lists the partitions that the two rings give to different members, by rising partition.
// Either ring may be nil: before the first member is active, no partition has an owner.
func Moves(before, after *Ring) []Move {
	if before != nil && after != nil && before.hash == after.hash {
		return nil
	}
	var moves []Move
	for p := range Partitions {
		from, to := before.ownerID(p), after.ownerID(p)
		if from != to {
			moves = append(moves, Move{Partition: p, From: from, To: to})
		}
	}
	return moves
}

func (r *Ring) ownerID(partition int) string {
	if r == nil {
		return ""
	}
	return r.ids[r.Owner(partition)]
}
