package main

import "strings"

// rightsClients has a client with each kind of right, and two that are known by a certificate.
const rightsClients = `clients:
- {name: shop, token: shop-0123456789abcdef, check: {limits: [five, shelf], keys: [shop/, user=]}}
- {name: till, token: till-0123456789abcdef, check: {limits: [five], keys: [shop/]}, refund: true}
- {name: free, token: free-0123456789abcdef, check: {inline: true}}
- {name: boss, token: boss-0123456789abcdef, check: {inline: true, limits: ["*"]}, refund: true}
- {name: view, token: view-0123456789abcdef, admin: read}
- {name: root, token: root-0123456789abcdef, admin: write}
- {name: prom, token: prom-0123456789abcdef, metrics: true}
- {name: shop, certificate: shop.example, check: {limits: [five, shelf], keys: [shop/, user=]}}
- {name: view, certificate: "spiffe://example/view", admin: read}
`

// goneClient was a client, until its entry was removed.
const goneClient = "- {name: gone, token: gone-0123456789abcdef, admin: write}\n"

// rightsRows are requests at all doors: the door, the request, and the clients that may send it.
// "known" are all clients, "all" is everybody, and "none" is a service that is not there. What
// stands in <> is in rightsWords.
const rightsRows = `
http GET /v1/check?limit=five&key=shop/1 = shop till boss
http GET /v1/check?limit=five&key=bank/1 = boss
http GET /v1/check?limit=five&key=shop/1&cost=-1 = till boss
http POST /v1/check <item> = shop till boss
http POST /v1/check {"items":[<item>,<bank>]} = boss
http POST /v1/check {"items":[<item>,<give>]} = till boss
http POST /v1/check {<inline>} = free boss
http POST /v1/check {<domain>} = boss
http POST /v1/check {"attributes":{"path":"/none"}} = shop till free boss
http POST /v1/check {"attributes":{"path":"/shop"}} = shop till boss
http GET /v1/auth?limit=five&key=shop/1 = shop till boss
http GET /v1/peek?limit=five&key=shop/1 = shop till boss view root
http GET /v1/peek?limit=five&key=bank/1 = boss view root
http POST /v1/reserve {<named>,"ttl_ms":60000} = shop till boss
http POST /v1/reserve {<other>,"ttl_ms":60000} = boss
http POST /v1/settle {"id":"<hold>","actual":1} = shop till boss root
http POST /v1/settle {"id":"<held>","actual":1} = boss root
http POST /v1/extend {"id":"<hold>","ttl_ms":60000} = shop till boss root
http POST /json <envoy> = shop boss
http POST /json {"domain":"none","descriptors":[<entry>]} = shop till free boss
http POST /v1/GetRateLimits {"requests":[<guber>]} = free boss
http POST /v1/GetRateLimits {"requests":[<guber>,<back>]} = boss
http POST /v1/GetRateLimits {"requests":[<clear>]} = boss root
http GET /v1/HealthCheck = known
http GET /v1/LiveCheck = known
http GET /v1/members = view root
http GET /v1/ring?key=k = view root
http GET /healthz = all
http GET /readyz = all
http GET /healthcheck = all

admin GET /metrics = prom
admin GET /v1/status = view root
admin GET /v1/top = view root
admin GET /v1/holds = view root
admin GET /v1/audit = view root
admin GET /v1/limits = view root
admin GET /v1/limits/history = view root
admin PUT /v1/limits <limit> = root
admin DELETE /v1/limits?name=none = root
admin POST /v1/limits/promote?name=none = root
admin POST /v1/limits/rollback?name=none&to=1 = root
admin POST /v1/reset <item> = till boss root
admin POST /v1/reset {<other>} = boss root
admin POST /v1/reset {<inline>} = boss root
admin POST /v1/drain = root
admin POST /v1/recover = root
admin GET /v1/cluster/watch = view root
admin GET /v1/cluster/limits = view root
admin GET /v1/cluster/rules = view root
admin GET /v1/cluster/ring = view root
admin GET /v1/cluster/heavy = view root
admin GET /v1/cluster/top = view root
admin GET /v1/cluster/keys?limit=five = view root
admin GET /v1/cluster/holds = view root
admin GET /v1/cluster/key?limit=five&key=k = view root
admin GET /debug/pprof/ = root
admin GET /debug/pprof/cmdline = root
admin GET /debug/pprof/heap = root
admin GET /debug/pprof/symbol = root
admin GET /ui/ = all
admin GET /healthz = all

grpc penstock.v1.RateLimiter/Check {"items":[<mine>]} = shop till boss
grpc penstock.v1.RateLimiter/Check {"items":[<mine>,<theirs>]} = boss
grpc penstock.v1.RateLimiter/Check {"items":[<return>]} = till boss
grpc penstock.v1.RateLimiter/Check {"items":[<bring>]} = free boss
grpc penstock.v1.RateLimiter/Check {"attributes":{"path":"/none"}} = shop till free boss
grpc penstock.v1.RateLimiter/CheckStream {"check":{"items":[<mine>]}} = shop till boss
grpc penstock.v1.RateLimiter/CheckStream {"check":{"items":[<return>]}} = till boss
grpc penstock.v1.RateLimiter/CheckStream {"check":{"attributes":{"a":"b"}}} = shop till free boss
grpc penstock.v1.RateLimiter/Peek {"items":[<mine>]} = shop till boss view root
grpc penstock.v1.RateLimiter/Peek {"items":[<bring>]} = free boss view root
grpc penstock.v1.RateLimiter/Reset {"items":[<mine>]} = till boss root
grpc penstock.v1.RateLimiter/Reset {"items":[<theirs>]} = boss root
grpc penstock.v1.RateLimiter/Reserve {"items":[<mine>],"ttlMs":60000} = shop till boss
grpc penstock.v1.RateLimiter/Reserve {"items":[<theirs>],"ttlMs":60000} = boss
grpc penstock.v1.RateLimiter/Reserve {"items":[<mine>],"ttlMs":60000,"lease":true} = shop till boss
grpc penstock.v1.RateLimiter/Reserve {"items":[<theirs>],"ttlMs":60000,"lease":true} = boss
grpc penstock.v1.RateLimiter/Settle {"id":"<hold>","actual":1} = shop till boss root
grpc penstock.v1.RateLimiter/Settle {"id":"<held>","actual":1} = boss root
grpc penstock.v1.RateLimiter/Extend {"id":"<held>","ttlMs":60000} = boss root
grpc pb.gubernator.V1/GetRateLimits {"requests":[<guber>]} = free boss
grpc pb.gubernator.V1/GetRateLimits {"requests":[<back>]} = boss
grpc pb.gubernator.V1/GetRateLimits {"requests":[<clear>]} = boss root
grpc pb.gubernator.V1/HealthCheck {} = known
grpc pb.gubernator.V1/LiveCheck {} = known
grpc envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit <envoy> = shop boss
grpc envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit <backs> = boss
grpc <quotas>/StreamRateLimitQuotas <quota> = shop boss
grpc grpc.health.v1.Health/Check {} = all
grpc grpc.health.v1.Health/Watch {} = all
grpc grpc.health.v1.Health/List {} = all
grpc grpc.reflection.v1.ServerReflection/ServerReflectionInfo {"listServices":""} = known
grpc grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo {"listServices":""} = known

calls penstock.v1.Admin/Members {} = view root
calls penstock.v1.Admin/Ring {"key":"aw=="} = view root
calls penstock.v1.Admin/Keys {} = view root
calls penstock.v1.Admin/Top {} = view root
calls penstock.v1.Admin/Holds {} = view root
calls penstock.v1.Admin/Limits {} = view root
calls penstock.v1.Admin/LimitHistory {} = view root
calls penstock.v1.Admin/PutLimit {"limit":<put>} = root
calls penstock.v1.Admin/DeleteLimit {"name":"none"} = root
calls penstock.v1.Admin/PromoteLimit {"name":"none"} = root
calls penstock.v1.Admin/RollbackLimit {"name":"none","to":"1"} = root
calls penstock.v1.Admin/Credit {"limit":"five","key":"c2hvcC8x","units":"1"} = root
calls penstock.v1.Admin/Recover {} = root
calls penstock.v1.Admin/Drain {} = root
calls grpc.reflection.v1.ServerReflection/ServerReflectionInfo {"listServices":""} = known

redis RL.REDUCE shop/1 5 60 = free boss
redis RL.PREDUCE shop/1 5 60000 = free boss
redis RL.SESSIONIZE shop/1 5 60 = free boss
redis RL.PSESSIONIZE shop/1 5 60000 = free boss
redis RL.GET shop/1 5 60 = free boss view root
redis RL.PGET shop/1 5 60000 = free boss view root
redis CL.THROTTLE shop/1 5 10 60 = free boss
redis CL.THROTTLE shop/1 5 10 60 0 = free boss view root
redis CL.THROTTLE shop/1 5 10 60 -1 = boss
redis TTL shop/1 = free boss view root
redis PTTL shop/1 = free boss view root
redis EXISTS shop/1 = free boss view root
redis DEL shop/1 = boss root
redis UNLINK shop/1 = boss root
redis MULTI = known
redis EXEC = known
redis DISCARD = known
redis WATCH shop/1 = known
redis UNWATCH = known
redis PING = known
redis ECHO x = known
redis CLIENT GETNAME = known
redis CONFIG GET x = known
redis COMMAND COUNT = known
redis SELECT 0 = known
redis INFO = known
redis READY = known
redis RESET = all
redis QUIT = all
`

var rightsWords = strings.NewReplacer(
	"<item>", `{"limit":"five","key":"shop/1"}`,
	"<bank>", `{"limit":"five","key":"bank/1"}`,
	"<give>", `{"limit":"five","key":"shop/1","cost":-1}`,
	"<named>", `"limit":"five","key":"shop/2"`, "<other>", `"limit":"five","key":"bank/2"`,
	"<inline>", `"inline":{"algorithm":"gcra","limit":10,"per":"1m"},"key":"shop/1"`,
	"<domain>", `"inline":{"name":"envoy/shelf","algorithm":"fixed_window","limit":10,"per":"1m"},`+
		`"key":"user=x"`,
	"<limit>", `{"name":"put","algorithm":"gcra","limit":1,"per":"1s"}`,
	"<put>", `{"name":"put","algorithm":"ALGORITHM_GCRA","limit":1,"perMs":1000}`,
	"<mine>", `{"limit":"five","key":"c2hvcC8x"}`, "<theirs>", `{"limit":"five","key":"YmFuay8x"}`,
	"<return>", `{"limit":"five","key":"c2hvcC8x","cost":"-1"}`,
	"<bring>", `{"inline":{"algorithm":"ALGORITHM_GCRA","limit":9,"perMs":1000},"key":"c2hvcC8x"}`,
	"<guber>", `{"name":"x","unique_key":"shop/1","hits":1,"limit":5,"duration":1000}`,
	"<back>", `{"name":"x","unique_key":"shop/1","hits":-1,"limit":5,"duration":1000}`,
	"<clear>", `{"name":"x","unique_key":"shop/1","limit":5,"duration":1000,"behavior":8}`,
	"<entry>", `{"entries":[{"key":"user","value":"x"}]}`,
	"<envoy>", `{"domain":"shelf","descriptors":[{"entries":[{"key":"user","value":"x"}]}]}`,
	"<backs>", `{"domain":"shelf","descriptors":[{"entries":[{"key":"user","value":"x"}],`+
		`"hitsAddend":"1","isNegativeHits":true}]}`,
	"<quotas>", "envoy.service.rate_limit_quota.v3.RateLimitQuotaService",
	"<quota>", `{"domain":"shelf","bucketQuotaUsages":[{"bucketId":{"bucket":{"user":"x"}},`+
		`"timeElapsed":"1s","numRequestsAllowed":"1"}]}`,
)
