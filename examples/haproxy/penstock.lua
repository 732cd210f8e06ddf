-- The action penstock LIMIT: charges one unit of a limit for the key in txn.penstock_key, and sets
-- txn.penstock_status, _body, _retry_after, _ratelimit and _policy. If the node does not answer
-- within half a second, nothing is set, and the request goes on.
local node = os.getenv("PENSTOCK") or "127.0.0.1:7949"

local function escape(text)
	return (text:gsub("[^%w%-._~]", function(c) return string.format("%%%02X", c:byte()) end))
end

core.register_action("penstock", { "http-req" }, function(txn, limit)
	local key = tostring(txn:get_var("txn.penstock_key"))
	local answer = core.httpclient():get {
		url = "http://" .. node .. "/v1/check?limit=" .. escape(limit) .. "&key=" .. escape(key),
		timeout = 500,
	}
	if not answer or answer.status == 0 then return end
	txn:set_var("txn.penstock_status", answer.status)
	txn:set_var("txn.penstock_body", answer.body)
	for variable, header in pairs {
		retry_after = "retry-after", ratelimit = "ratelimit", policy = "ratelimit-policy",
	} do
		local values = answer.headers[header]
		if values then txn:set_var("txn.penstock_" .. variable, values[0]) end
	end
end, 1)
