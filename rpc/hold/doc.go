// Package hold is what every door says about reservations: Reserve opens holds, SettleOrExtend ends
// or prolongs one, and the id of a hold says by itself which key it is on.
package hold
