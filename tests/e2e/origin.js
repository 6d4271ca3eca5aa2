// An upstream on Node's own http server, for the tests beside it.  Prints "listening PORT".
// With the argument h2 it is Node's http2 server, by the same interface; with h2 CERT KEY that over TLS.
//
// /echo       method, target and fields as JSON in x-seen, the body back in chunks as they come
// /sum        SHA-256 of the body, in hex digits
// /hello      a body with a length
// /bytes/N    N bytes, with a length
// /chunks/N   N chunks, each when the one before has been flushed
// /trailers   chunks and a trailer
// /hints      103 with two links, then the answer
// /empty      204
// /fresh      304 with an ETag, to who asks with If-None-Match
// /refuse     413 at once, the body unread
// /hold/NAME  the head and one chunk now, the rest when /release/NAME is asked for
// /wait/NAME  nothing until /release/NAME is asked for
// /waiting    the NAMEs that are held, as JSON
// /gone       the NAMEs that were held when their client left, as JSON
// /fickle     a body, and soon after it the connection is closed, as if it had been idle for too long
// /count      how many connections there were, as JSON
// Upgrade     101 for WebSocket, but then "welcome ", and every byte back; an end is answered by "bye" and an end;
//             at "abort" the connection is reset, and a tunnel that broke off is one of /gone: "tunnel"
// CONNECT     a tunnel with the same manners
'use strict';
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const http2 = require('node:http2');

const [version, cert, key] = process.argv.slice(2);
let connections = 0;
const held = new Map();
const gone = new Set();

function hold(name, response, go) {
  held.set(name, go);
  response.on('close', () => response.writableEnded || gone.add(name));
}

function sized(response, body) {
  response.setHeader('content-length', body.length); // for HEAD, too, where Node leaves it out
  response.end(body);
}

const routes = {
  hello: (request, response) => sized(response, Buffer.from('hello\n')),
  bytes: (request, response, count) => sized(response, Buffer.alloc(Number(count), 'x')),
  async chunks(request, response, count) {
    for (let index = 0; index < Number(count); index++) {
      await new Promise((done) => response.write(`chunk ${index}\n`, () => setImmediate(done)));
    }
    response.end();
  },
  trailers(request, response) {
    response.writeHead(200, {trailer: 'x-sum', 'content-type': 'text/plain'});
    response.write('one');
    response.addTrailers({'x-sum': '42'});
    response.end('two');
  },
  hints(request, response) {
    response.writeEarlyHints({link: ['</a.css>; rel=preload', '</b.js>; rel=preload']});
    response.end('hinted');
  },
  empty(request, response) {
    response.writeHead(204);
    response.end();
  },
  fresh(request, response) {
    response.writeHead(request.headers['if-none-match'] === '"a"' ? 304 : 200, {etag: '"a"'});
    response.end();
  },
  sum(request, response) {
    const sum = crypto.createHash('sha256');
    request.on('data', (data) => sum.update(data));
    request.on('end', () => response.end(sum.digest('hex')));
  },
  refuse(request, response) {
    response.writeHead(413, {'content-type': 'text/plain', ...(version ? {} : {connection: 'close'})});
    response.end('too much\n');
  },
  hold(request, response, name) {
    response.write('first\n');
    hold(name, response, () => response.end('last\n'));
  },
  wait(request, response, name) {
    hold(name, response, () => response.end(`released ${name}\n`));
  },
  release(request, response, name) {
    const go = held.get(name);
    held.delete(name);
    if (go) go();
    response.end(go ? 'yes\n' : 'no\n');
  },
  waiting: (request, response) => response.end(JSON.stringify([...held.keys()])),
  gone: (request, response) => response.end(JSON.stringify([...gone])),
  fickle(request, response) {
    sized(response, Buffer.from('gone\n'));
    response.on('finish', () => setTimeout(() => request.socket.destroy(), Math.random() * 3));
  },
  count: (request, response) => response.end(JSON.stringify(connections)),
  echo(request, response) {
    const seen = {method: request.method, target: request.url, fields: request.rawHeaders};
    response.writeHead(200, {'x-seen': JSON.stringify(seen), 'content-type': 'application/octet-stream'});
    request.on('end', () => {
      if (Object.keys(request.trailers).length) response.addTrailers({'x-trailers': JSON.stringify(request.trailers)});
      response.end();
    });
    request.pipe(response, {end: false});
  },
};

function answer(request, response) {
  const [, first, rest] = /^\/([^/?]*)\/?([^?]*)/.exec(request.url);
  const route = routes[first];
  if (route) return route(request, response, rest);
  response.writeHead(404);
  return response.end('no such path\n');
}

function tunnel(socket, head) {
  let whole = false;
  socket.on('error', () => socket.destroy());
  socket.on('data', (data) => (String(data) === 'abort' ? socket.resetAndDestroy() : socket.write(data)));
  socket.on('end', () => ((whole = true), socket.end('bye')));
  socket.on('close', () => whole || gone.add('tunnel'));
  if (head.length) socket.write(head);
}

const tls = cert && {cert: fs.readFileSync(cert), key: fs.readFileSync(key)};
const server = cert ? http2.createSecureServer(tls, answer) : (version ? http2 : http).createServer(answer);
server.on('upgrade', (request, socket, head) => {
  const key = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
  const accept = crypto.createHash('sha1').update(key).digest('base64');
  const fields = `Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${accept}\r\n`;
  socket.write(`HTTP/1.1 101 Switching Protocols\r\n${fields}\r\nwelcome `);
  tunnel(socket, head);
});
if (!version) server.on('connect', (request, socket, head) => {
  socket.write('HTTP/1.1 200 Connected\r\n\r\n');
  tunnel(socket, head);
});
server.on(cert ? 'secureConnection' : 'connection', () => connections++);
server.keepAliveTimeout = 60000;
server.listen(0, '127.0.0.1', () => console.log(`listening ${server.address().port}`));
