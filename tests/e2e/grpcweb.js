// A client of gRPC-Web as a page would be one, on fetch: grpcweb(url, type, message, headers) → what came.
// It runs in Node, for the test beside it (node grpcweb.js URL TYPE MESSAGE [JSON OF HEADERS]), and in a page.
'use strict';

async function grpcweb(url, type, message, headers) {
  const text = type.includes('-text');
  const sent = new TextEncoder().encode(message);
  const frame = new Uint8Array(5 + sent.length);
  new DataView(frame.buffer).setUint32(1, sent.length);
  frame.set(sent, 5);
  const body = text ? btoa(String.fromCharCode(...frame)) : frame;
  const found = {messages: [], trailers: null, reads: 0, broken: false};
  const answer = await fetch(url, {method: 'POST', headers: {'content-type': type, 'x-grpc-web': '1', ...headers}, body});
  Object.assign(found, {status: answer.status, type: answer.headers.get('content-type'), begun: answer.headers.get('app-a')});
  let held = new Uint8Array(0);
  let chars = '';
  function take(bytes) {
    const joined = new Uint8Array(held.length + bytes.length);
    joined.set(held);
    joined.set(bytes, held.length);
    held = joined;
    while (held.length >= 5) {
      const size = new DataView(held.buffer, held.byteOffset).getUint32(1);
      if (held.length < 5 + size) break;
      const data = new TextDecoder().decode(held.subarray(5, 5 + size));
      if (held[0] & 0x80) {
        found.trailers = Object.fromEntries(data.split('\r\n').filter(Boolean).map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)]));
      } else {
        found.messages.push(data);
      }
      held = held.slice(5 + size);
    }
  }
  try {
    const reader = answer.body.getReader();
    for (;;) {
      const {done, value} = await reader.read();
      if (done) break;
      found.reads++;
      if (!text) { take(value); continue; }
      chars += new TextDecoder().decode(value);
      const whole = chars.length - chars.length % 4;
      for (let at = 0; at < whole; at += 4) {
        take(Uint8Array.from(atob(chars.slice(at, at + 4)), (char) => char.charCodeAt(0)));
      }
      chars = chars.slice(whole);
    }
  } catch (error) {
    found.broken = true;
  }
  return {...found, rest: held.length + chars.length};
}

if (typeof process !== 'undefined' && require.main === module) {
  const [url, type, message, headers] = process.argv.slice(2);
  grpcweb(url, type, message, JSON.parse(headers || '{}')).then((found) => console.log(JSON.stringify(found)));
}
