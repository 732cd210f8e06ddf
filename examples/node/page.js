// A page behind Penstock, in Node.js without a package: node page.js 127.0.0.1:8080
'use strict';
const http = require('node:http');

const node = process.env.PENSTOCK || '127.0.0.1:7949';
const agent = new http.Agent({ keepAlive: true });

// check charges one unit. A node that does not answer within half a second admits the request.
function check(limit, key) {
  const query = new URLSearchParams({ limit, key });
  return new Promise((resolve, reject) => {
    const request = http.get(`http://${node}/v1/check?${query}`, { agent, timeout: 500 }, (answer) => {
      let body = '';
      answer.on('data', (part) => { body += part; });
      answer.on('end', () => {
        if (answer.statusCode !== 200 && answer.statusCode !== 429) {
          return reject(new Error(`Penstock answers ${answer.statusCode}: ${body}`));
        }
        resolve({ allowed: answer.statusCode === 200, headers: answer.headers, body });
      });
    });
    request.on('timeout', () => request.destroy(new Error('no answer in time')));
    request.on('error', () => resolve({ allowed: true, headers: {}, body: '' }));
  });
}

// limited is middleware in the manner of Express: (request, response, next).
function limited(limit) {
  return (request, response, next) => {
    const key = request.headers['x-user'] || request.socket.remoteAddress;
    check(limit, key).then(({ allowed, headers, body }) => {
      for (const name of ['RateLimit', 'RateLimit-Policy', 'Retry-After']) {
        const value = headers[name.toLowerCase()];
        if (value) response.setHeader(name, value);
      }
      if (allowed) return next();
      response.writeHead(429, { 'Content-Type': 'application/problem+json' }).end(body);
    }).catch(next);
  };
}

const guard = limited('api');
const [host, port] = process.argv[2].split(':');
http.createServer((request, response) => {
  guard(request, response, (fault) => {
    if (fault) return response.writeHead(500).end(`${fault.message}\n`);
    response.end('hello\n');
  });
}).listen(port, host);
