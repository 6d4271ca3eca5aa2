// An upstream on Node's own http2 server, for the tests beside it.  Prints "listening PORT".
// With arguments CERT KEY it speaks TLS, and nothing but HTTP/2 by ALPN.
//
// /echo       method, target, authority and fields as JSON in x-seen, the body back as it comes, trailers in x-trailers
// /sum        SHA-256 of the body, in hex digits
// /bytes/N    N bytes
// /hints      103 with a link, then the answer
// /trailers   a body and a trailer
// /refuse     413 at once, the body unread, then the stream is reset with NO_ERROR
// /reset      one piece of a body, then the stream is reset with INTERNAL_ERROR
// /lost       one piece of a body, then the connection is gone
// /push       whether push would be allowed, as JSON
// /hold       the head and one piece, and nothing more
// /gone       how many /hold and tunnels were reset, as JSON
// /count      how many connections there were, as JSON
// CONNECT     200, "welcome ", every byte back; an end is answered by "bye" and an end, "abort" by RST_STREAM
'use strict';
const crypto = require('node:crypto');
const fs = require('node:fs');
const http2 = require('node:http2');

const [cert, key] = process.argv.slice(2);
let connections = 0;
let gone = 0;

const routes = {
  bytes: (stream, fields, count) => (stream.respond({':status': 200}), stream.end(Buffer.alloc(Number(count), 'x'))),
  sum(stream) {
    const sum = crypto.createHash('sha256');
    stream.on('data', (data) => sum.update(data));
    stream.on('end', () => (stream.respond({':status': 200}), stream.end(sum.digest('hex'))));
  },
  hints(stream) {
    stream.additionalHeaders({':status': 103, link: '</a.css>; rel=preload'});
    stream.respond({':status': 200});
    stream.end('hinted');
  },
  trailers(stream) {
    stream.respond({':status': 200}, {waitForTrailers: true});
    stream.on('wantTrailers', () => stream.sendTrailers({'x-sum': '42'}));
    stream.end('onetwo');
  },
  refuse(stream) {
    stream.respond({':status': 413});
    stream.end('too much\n', () => stream.close(http2.constants.NGHTTP2_NO_ERROR));
  },
  reset(stream) {
    stream.respond({':status': 200});
    stream.write('first', () => setTimeout(() => stream.destroy(new Error('reset')), 50));
  },
  lost(stream) {
    stream.respond({':status': 200});
    stream.write('first', () => setTimeout(() => stream.session.destroy(), 50));
  },
  push: (stream) => (stream.respond({':status': 200}), stream.end(JSON.stringify(stream.pushAllowed))),
  hold(stream) {
    stream.respond({':status': 200});
    stream.write('first');
    stream.on('aborted', () => gone++);
  },
  gone: (stream) => (stream.respond({':status': 200}), stream.end(JSON.stringify(gone))),
  count: (stream) => (stream.respond({':status': 200}), stream.end(JSON.stringify(connections))),
  echo(stream, fields) {
    const seen = {};
    for (const [name, value] of Object.entries(fields)) seen[name] = value;
    let trailers = null;
    stream.on('trailers', (found) => (trailers = {...found}));
    stream.respond({':status': 200, 'x-seen': JSON.stringify(seen)}, {waitForTrailers: true});
    stream.on('wantTrailers', () =>
      stream.sendTrailers(trailers === null ? {} : {'x-trailers': JSON.stringify(trailers)}));
    stream.pipe(stream);
  },
};

function tunnel(stream) {
  stream.respond({':status': 200});
  stream.write('welcome ');
  stream.on('data', (data) =>
    String(data) === 'abort' ? stream.destroy(new Error('abort')) : stream.write(data));
  stream.on('end', () => stream.end('bye'));
  stream.on('aborted', () => gone++);
}

const settings = {enableConnectProtocol: true};
const server = cert
  ? http2.createSecureServer({cert: fs.readFileSync(cert), key: fs.readFileSync(key), settings})
  : http2.createServer({settings});
server.on('stream', (stream, fields) => {
  stream.on('error', () => {});
  if (fields[':method'] === 'CONNECT') return tunnel(stream);
  const [, first, rest] = /^\/([^/?]*)\/?([^?]*)/.exec(fields[':path']);
  if (routes[first]) return routes[first](stream, fields, rest);
  stream.respond({':status': 404});
  return stream.end('no such path\n');
});
server.on('session', (session) => (connections++, session.on('error', () => {})));
server.on('sessionError', () => {});
server.listen(0, '127.0.0.1', () => console.log(`listening ${server.address().port}`));
