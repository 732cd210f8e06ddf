package fair

// A client has further accounts than that for its requests, by other names. What it does at the
// expense of one leaves it what it may have from the others.

// Health is the account for questions about the health of a node. A node must not be taken for
// dead, and started anew, because a client at the address of the probe floods it.
func Health(client string) string { return "health of " + client }

// Operator is the account for pages that say what a node is busy with, and change it.
func Operator(client string) string { return "operator at " + client }

// Stranger is the account for requests that name no client of a node that has a list of them. Its
// client with the one token of a list has no name, and may be at the same address.
func Stranger(client string) string { return "stranger at " + client }
