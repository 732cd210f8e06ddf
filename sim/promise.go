package sim

// promise is something that a judge holds a world to.
type promise int

// The promises, in the order of the report.
const (
	exact promise = iota
	useful
	lossless
	warned
	ready
	bounded
	once
	owned
	honest
	marked
	inTime
	refused
	aside
	lent
	kept
	live
	agreed
	sound
	promises // how many there are
)

// promiseWords are a promise's name, and what it says.
var promiseWords = [promises][2]string{
	exact:    {"exact", "an owner decides in all as one naive limiter would"},
	useful:   {"useful", "nobody is denied what one limiter would surely grant"},
	lossless: {"counted", "only what was charged just before a death is forgotten"},
	warned:   {"warned", "where several fail at once, decisions say what is lost"},
	ready:    {"available", "soon after a fault answers are neither degraded nor late"},
	bounded:  {"bounded", "no span of time admits more than one limiter supplies"},
	once:     {"once", "a take is charged once, however often it is sent or comes"},
	owned:    {"owner", "the owner of a key decides, and nobody else"},
	honest:   {"answer", "a client hears what the owner decided"},
	marked:   {"marked", "a decision without the owner says so and keeps its bound"},
	inTime:   {"deadline", "no check, call or ask outlives its deadline"},
	refused:  {"input", "a request in error is refused as a whole, others never"},
	aside:    {"aside", "what is set aside is what its holders have, and runs out"},
	lent:     {"lent", "a node spends what was lent to it, and while it lasts"},
	kept:     {"kept", "in the end tables hold what was charged, no more or less"},
	live:     {"live", "nobody is left waiting, the world comes to rest"},
	agreed:   {"converged", "in the end all agree who is there and who owns what"},
	sound:    {"panic", "no code panics"},
}
