// Package redis tries Redis clients, as they are, against three nodes of Penstock: go-redis,
// valkey-go, redis-cli and redis-benchmark. A program that limits with redis-cell or with Smyte's
// rate limiter goes on as before when its address points to any Penstock node.
//
//	go test ./...
package redis
