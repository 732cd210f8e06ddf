<?php
// A page behind Penstock, in PHP without an extension: php -S 127.0.0.1:8080 page.php

// check charges one unit, and returns whether the request is admitted, the headers for the client,
// and the answer. A node that does not answer within half a second admits the request.
function check(string $limit, string $key): array
{
    $node = getenv('PENSTOCK') ?: '127.0.0.1:7949';
    $query = http_build_query(['limit' => $limit, 'key' => $key]);
    $context = stream_context_create(['http' => ['timeout' => 0.5, 'ignore_errors' => true]]);
    $body = @file_get_contents("http://$node/v1/check?$query", false, $context);
    if ($body === false) {
        return [true, [], ''];
    }
    $status = (int) explode(' ', $http_response_header[0])[1];
    if ($status !== 200 && $status !== 429) {
        throw new RuntimeException("Penstock answers $status: $body");
    }
    $shown = preg_grep('/^(RateLimit|RateLimit-Policy|Retry-After):/i', $http_response_header);
    return [$status === 200, $shown, $body];
}

[$allowed, $headers, $body] = check('api', $_SERVER['HTTP_X_USER'] ?? $_SERVER['REMOTE_ADDR']);
foreach ($headers as $line) {
    header($line);
}
if (!$allowed) {
    http_response_code(429);
    header('Content-Type: application/problem+json');
    echo $body;
    return;
}
header('Content-Type: text/plain');
echo "hello\n";
