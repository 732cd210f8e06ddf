package cores

// Fit is a model of how a decision's time grows with the number of cores, beside that with one:
//
//	time(n) / time(1) = 1 + Queue × (n − 1) + Moved × (n − 1) / n
//
// Queue is waiting for locks: each caller meets n − 1 others, as in Amdahl's law. Moved is waiting
// for lines of memory that another core has written last: of n cores that is another one in n − 1
// of n cases. USL is the universal scalability law with the same Queue, in which the second part is
// Kappa × n × (n − 1) instead: as if each line had to be asked for at all cores. It fits the same
// figures, and is the worse of both for many cores.
type Fit struct{ Queue, Moved, Kappa float64 }

// Model fits what was measured with more than one core. Of the loss, the part that the locks'
// profile has seen as waiting is Queue, and the rest Moved; of several numbers of cores the means
// count.
func Model(points []Point) (f Fit) {
	n := 0.0
	for _, p := range points {
		if p.Cores < 2 || p.Speed <= 0 {
			continue
		}
		cores := float64(p.Cores)
		loss := max(0, cores*points[0].Speed/p.Speed-1)
		waits := 0.0
		for _, share := range p.Locks {
			waits += share / 100
		}
		queue := min(loss, waits*(1+loss))
		f.Queue += queue / (cores - 1)
		f.Moved += (loss - queue) * cores / (cores - 1)
		f.Kappa += (loss - queue) / cores / (cores - 1)
		n++
	}
	if n > 0 {
		f.Queue, f.Moved, f.Kappa = f.Queue/n, f.Moved/n, f.Kappa/n
	}
	return f
}

// Linear is which part of n times one core's speed n cores reach.
func (f Fit) Linear(n int) float64 {
	c := float64(n)
	return 1 / (1 + f.Queue*(c-1) + f.Moved*(c-1)/c)
}

// USL is the same by the universal scalability law.
func (f Fit) USL(n int) float64 {
	c := float64(n)
	return 1 / (1 + f.Queue*(c-1) + f.Kappa*c*(c-1))
}
