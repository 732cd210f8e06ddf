// Package gubernator is the door for clients of Gubernator: pb.gubernator.V1, with its field
// numbers and enum values, so that they need no change. The HTTP door registers its JSON (json.go).
// What the door translates:
//
//   - A request states its limit: TOKEN_BUCKET is a stated_window, LEAKY_BUCKET a stated_bucket. If
//     the cluster has a limit of that name, that one decides instead.
//   - hits are the cost; 0 asks for the state, and negative hits give back. RESET_REMAINING resets.
//   - remaining, reset_time and status come from the decision; metadata names the owner, and says
//     retry_after_ms of a denial, and degraded with its bound.
//   - GLOBAL and MULTI_REGION are answered by the owner, exactly. created_at is not read.
//   - An error of one request is in its response, and others are decided.
//
// A call takes its memory with it from the bytes that are read to those that are written (call.go,
// writer.go). DESIGN.md says why, and lists all differences.
package gubernator
