// SOTP/1 in JavaScript, written from docs/sotp.md alone: it shares no code with protogate.
//
//   node peer.js vectors FILE     holds itself to the vectors, prints one JSON object
//   node peer.js server           listens on a free port of 127.0.0.1, prints "listening PORT"
//   node peer.js client PORT WAY  plays one of the ways below, prints one JSON object
'use strict';
const fs = require('node:fs');
const net = require('node:net');
const zlib = require('node:zlib');

const HELLO = 0, REQUEST = 1, RESPONSE = 2, DATA = 3, TRAILERS = 4, CREDIT = 5, CANCEL = 6, PING = 7, PONG = 8, GOAWAY = 9;
const END = 1, INTERIM = 2;
const LEAST = {streams: 100, window: 65536, total: 1048576, data: 16384, heads: 16384};
const OURS = {lowest: 1, highest: 1, heartbeat: 1, capabilities: 1, streams: 50, window: 100000, total: 2000000, data: 30000, heads: 20000};
const TYPES = ['', 'application/json', 'application/x-protobuf', 'application/msgpack', 'text/plain; charset=utf-8',
  'application/octet-stream', 'application/x-www-form-urlencoded'];
const CODINGS = ['', 'gzip', 'zstd'];
const HTTP_OF = [200, 499, 500, 400, 504, 404, 409, 403, 429, 412, 409, 416, 501, 500, 503, 500, 401, 413, 502, 302, 408];
const FROM_HTTP = {400: 3, 401: 16, 403: 7, 404: 5, 408: 20, 409: 10, 412: 9, 413: 17, 414: 17, 416: 11, 429: 8, 431: 17,
  499: 1, 501: 12, 502: 18, 503: 14, 504: 4};
const CLOSED = /^(connection|content[-_]length|host|http2[-_]settings|keep[-_]alive|proxy|proxy[-_]connection|trailer|transfer[-_]encoding|upgrade)$/;

class Bad extends Error {}
function need(what, text) { if (!what) throw new Bad(text); }

// -- frames

function frame(type, flags, stream, payload = Buffer.alloc(0)) {
  const head = Buffer.alloc(12);
  head.writeUInt16BE(0xd550, 0);
  head[2] = 1;
  head[3] = type;
  head[4] = flags;
  head.writeUIntBE(payload.length, 5, 3);
  head.writeUInt32BE(stream, 8);
  return Buffer.concat([head, payload]);
}

function* frames(data) { // yields frames; returns what is left
  let at = 0;
  while (data.length - at >= 12) {
    need(data.readUInt16BE(at) === 0xd550, 'magic');
    need(data[at + 2] === 1, 'version');
    const size = data.readUIntBE(at + 5, 3);
    if (data.length - at - 12 < size) break;
    yield {type: data[at + 3], flags: data[at + 4], stream: data.readUInt32BE(at + 8), payload: data.subarray(at + 12, at + 12 + size)};
    at += 12 + size;
  }
  return data.subarray(at);
}

// -- heads

class Cursor {
  constructor(data) { this.data = data; this.at = 0; }
  take(size) {
    need(this.at + size <= this.data.length, 'cut off');
    this.at += size;
    return this.data.subarray(this.at - size, this.at);
  }
  number(size) { return this.take(size).readUIntBE(0, size); }
  text(size) { return this.take(size).toString('latin1'); }
}

function readPairs(from, count) {
  const sizes = Array.from({length: count}, () => [from.number(1), from.number(2)]);
  const pairs = sizes.map(([name, value]) => [from.text(name), from.text(value)]);
  need(from.at === from.data.length, 'bytes behind the pairs');
  for (const [name, value] of pairs) {
    need(/^[!#$%&'*+\-.^_`|~0-9a-z]+$/.test(name), 'name');
    need(/^([\x21-\x7e\x80-\xff]([\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?$/.test(value), 'value');
    need(!CLOSED.test(name), 'forbidden name');
    need(name !== 'te' || value === 'trailers', 'te');
    need(name !== 'expect' || value === '100-continue', 'expect');
  }
  return pairs;
}

function writePairs(pairs) {
  const sizes = pairs.map(([name, value]) => Buffer.from([name.length, value.length >> 8, value.length & 255]));
  return Buffer.concat([...sizes, Buffer.from(pairs.flat().join(''), 'latin1')]);
}

function content(head, serialization, compression) {
  const has = (name) => head.fields.some((pair) => pair[0] === name);
  if (serialization) {
    need(!has('content-type'), 'two types');
    head.fields.push(['content-type', TYPES[serialization] || `application/x-sotp; type=${serialization}`]);
  }
  if (compression) {
    need(CODINGS[compression] && !has('content-encoding'), 'compression');
    head.fields.push(['content-encoding', CODINGS[compression]]);
  }
}

function readLength(from) {
  const length = from.take(8).readBigUInt64BE();
  need(length < 1n << 63n, 'length');
  return Number(length);
}

const WORD = /^[A-Za-z0-9_~$-][A-Za-z0-9._~$-]*$/;

function readRequest(payload) {
  const from = new Cursor(payload);
  const number = from.number(4), deadline = from.number(4), serialization = from.number(1), compression = from.number(1);
  const form = from.number(1), named = from.number(1), operated = from.number(1), authorized = from.number(1);
  const count = from.number(2);
  need(form < 8, 'form');
  const head = {service: '', method: 'POST', scheme: form & 4 ? 'https' : 'http', upgrade: null, deadline};
  head.length = form & 1 ? readLength(from) : null;
  if (form & 2) {
    const sizes = [from.number(1), from.number(1), from.number(2)];
    head.authority = from.text(authorized);
    head.method = from.text(sizes[0]);
    head.target = from.text(sizes[2]);
    const token = from.text(sizes[1]);
    need(!number && !named && !operated, 'a service beside a method');
    need(/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(head.method), 'method');
    if (head.method === 'CONNECT' || token === 'connect') {
      need(head.method === 'CONNECT' && token === 'connect' && !head.target, 'connect');
    } else {
      need(/^(\/[\x21\x22\x24-\x7e]*|\*)$/.test(head.target) && (head.target !== '*' || head.method === 'OPTIONS'), 'target');
    }
    need(['', 'websocket', 'connect'].includes(token), 'token');
    need(!token || head.length === null, 'a tunnel has no length');
    head.upgrade = token || null;
  } else {
    const name = from.text(named);
    const operation = from.text(operated);
    head.authority = from.text(authorized);
    need(named ? !number && WORD.test(name) && !/^[0-9]+$/.test(name) : number, 'service');
    need(WORD.test(operation), 'operation');
    head.service = name || String(number);
    head.operation = operation;
    head.target = `/${head.service}/${operation}`;
  }
  need(/^[\x21-\x7e]*$/.test(head.authority), 'authority');
  if (!(form & 2)) head.authority = head.authority || head.service;
  head.fields = readPairs(from, count);
  content(head, serialization, compression);
  return head;
}

function writeRequest({service = 0, operation = '', deadline = 0, serialization = 0, compression = 0, fields = [], length = null}) {
  const head = Buffer.alloc(16);
  const name = typeof service === 'string' ? service : '';
  head.writeUInt32BE(name ? 0 : service, 0);
  head.writeUInt32BE(deadline, 4);
  head.set([serialization, compression, length === null ? 0 : 1, name.length, operation.length, 0], 8);
  head.writeUInt16BE(fields.length, 14);
  const size = Buffer.alloc(length === null ? 0 : 8);
  if (length !== null) size.writeBigUInt64BE(BigInt(length));
  return Buffer.concat([head, size, Buffer.from(name + operation, 'latin1'), writePairs(fields)]);
}

function readResponse(payload) {
  const from = new Cursor(payload);
  const status = from.number(2), http = from.number(2), serialization = from.number(1), compression = from.number(1);
  const form = from.number(1);
  from.number(1);
  const count = from.number(2);
  need(form < 2, 'form');
  const head = {status, length: form ? readLength(from) : null};
  need(!http || (http >= 100 && http < 600), 'http');
  head.http = http || HTTP_OF[status] || 500;
  head.fields = readPairs(from, count);
  content(head, serialization, compression);
  const back = FROM_HTTP[head.http] ?? {1: 0, 2: 0, 3: 19, 4: 3, 5: 13}[Math.floor(head.http / 100)];
  if (back !== status) head.fields.push(['sotp-status', String(status)]);
  return head;
}

function writeResponse({status = 0, http = 0, serialization = 0, compression = 0, fields = [], length = null}) {
  const head = Buffer.alloc(10);
  head.writeUInt16BE(status, 0);
  head.writeUInt16BE(http, 2);
  head.set([serialization, compression, length === null ? 0 : 1, 0], 4);
  head.writeUInt16BE(fields.length, 8);
  const size = Buffer.alloc(length === null ? 0 : 8);
  if (length !== null) size.writeBigUInt64BE(BigInt(length));
  return Buffer.concat([head, size, writePairs(fields)]);
}

function readTrailers(payload) {
  const from = new Cursor(payload);
  return readPairs(from, from.number(2));
}

function writeTrailers(fields) {
  return Buffer.concat([Buffer.from([fields.length >> 8, fields.length & 255]), writePairs(fields)]);
}

function readHello(payload) {
  const from = new Cursor(payload);
  const hello = {};
  for (const [name, size] of [['lowest', 1], ['highest', 1], ['heartbeat', 2], ['capabilities', 4], ['streams', 4], ['window', 4],
    ['total', 4], ['data', 4], ['heads', 4]]) hello[name] = from.number(size);
  return hello;
}

function writeHello(hello) {
  const head = Buffer.alloc(28);
  head.set([hello.lowest, hello.highest], 0);
  head.writeUInt16BE(hello.heartbeat, 2);
  ['capabilities', 'streams', 'window', 'total', 'data', 'heads'].forEach((name, at) => head.writeUInt32BE(hello[name], 4 + 4 * at));
  return head;
}

function long(number) {
  const made = Buffer.alloc(4);
  made.writeUInt32BE(number);
  return made;
}

function coded(code, text = '') { return Buffer.concat([Buffer.from([code >> 8, code & 255]), Buffer.from(text)]); }

// -- a connection, either side

class Stream {
  constructor(link, id) {
    Object.assign(this, {link, id, head: null, interims: [], got: [], size: 0, trailers: [], ended: false, cancelled: null});
    Object.assign(this, {credit: link.peer.window, queue: [], sentEnd: false, owed: 0, reading: true, onhead() {}, ondata() {}, onend() {}});
  }
  send(data, flags = 0, trailers = null) { // waits for credit, in order
    if (data.length) this.queue.push(data);
    if (flags || trailers) this.finish = {trailers};
    this.pump();
  }
  pump() {
    const {link} = this;
    while (this.queue.length && !this.cancelled) {
      const piece = this.queue[0];
      const size = Math.min(piece.length, this.credit, link.credit, link.peer.data);
      if (!size) return;
      const rest = piece.subarray(size);
      if (rest.length) this.queue[0] = rest; else this.queue.shift();
      this.credit -= size;
      link.credit -= size;
      link.write(frame(DATA, 0, this.id, piece.subarray(0, size)));
    }
    if (this.finish && !this.sentEnd && !this.cancelled) {
      this.sentEnd = true;
      const {trailers} = this.finish;
      link.write(trailers ? frame(TRAILERS, 0, this.id, writeTrailers(trailers)) : frame(DATA, END, this.id));
    }
  }
  taken(size) { // credit goes back when it is read, half a window at a time
    this.owed += size;
    if (this.owed >= OURS.window / 2 && this.reading) {
      if (!this.ended) this.link.write(frame(CREDIT, 0, this.id, long(this.owed)));
      this.link.write(frame(CREDIT, 0, 0, long(this.owed)));
      this.owed = 0;
    }
  }
  cancel(code, text) {
    this.cancelled = {code, text};
    this.link.write(frame(CANCEL, 0, this.id, coded(code, text)));
  }
  get data() { return Buffer.concat(this.got); }
}

class Link {
  constructor(socket, serve) {
    Object.assign(this, {socket, serve, peer: {...LEAST}, credit: LEAST.total, streams: new Map(), rest: Buffer.alloc(0), greeted: false});
    Object.assign(this, {pings: 0, pongs: 0, goaways: [], next: 1, largest: 0, onhello() {}, onclose() {}});
    socket.setNoDelay(true);
    socket.on('data', (data) => this.read(data));
    socket.on('error', () => {});
    socket.on('close', () => { clearInterval(this.timer); this.closed = true; this.onclose(); });
    if (!serve) this.write(frame(HELLO, 0, 0, writeHello(OURS)));
  }
  write(data) { this.wrote = true; this.socket.write(data); }
  read(data) {
    this.heard = true;
    const found = frames(Buffer.concat([this.rest, data]));
    let step;
    while (!(step = found.next()).done) this.take(step.value);
    this.rest = Buffer.from(step.value);
  }
  take({type, flags, stream: id, payload}) {
    if (type === HELLO) return this.greet(readHello(payload));
    if (type === PING) { this.pings++; return this.write(frame(PONG, 0, 0, payload)); }
    if (type === PONG) { this.pongs++; return undefined; }
    if (type === GOAWAY) return this.goaways.push({last: payload.readUInt32BE(0), code: payload.readUInt16BE(4), text: payload.toString('utf8', 6)});
    if (type === CREDIT && !id) {
      this.credit += payload.readUInt32BE(0);
      return this.streams.forEach((each) => each.pump());
    }
    let stream = this.streams.get(id);
    if (type === REQUEST) {
      stream = new Stream(this, id);
      this.streams.set(id, stream);
      this.largest = id;
      try {
        stream.head = readRequest(payload);
      } catch (error) {
        this.write(frame(RESPONSE, END, id, writeResponse({status: 3})));
        return stream.cancel(0);
      }
      this.serve(stream);
      if (flags & END) this.end(stream);
      return undefined;
    }
    if (!stream) return undefined;
    if (type === CREDIT) { stream.credit += payload.readUInt32BE(0); stream.pump(); }
    if (type === CANCEL) { stream.cancelled = {code: payload.readUInt16BE(0), text: payload.toString('utf8', 2)}; stream.onend(); }
    if (type === RESPONSE) {
      const head = readResponse(payload);
      if (flags & INTERIM) stream.interims.push(head); else stream.head = head;
      stream.onhead(head);
      if (flags & END) this.end(stream);
    }
    if (type === DATA) {
      stream.size += payload.length;
      stream.got.push(Buffer.from(payload));
      stream.ondata(payload);
      stream.taken(payload.length);
      if (flags & END) this.end(stream);
    }
    if (type === TRAILERS) { stream.trailers = readTrailers(payload); this.end(stream); }
    return undefined;
  }
  end(stream) { stream.ended = true; stream.onend(); }
  greet(hello) {
    if (this.serve) this.write(frame(HELLO, 0, 0, writeHello(OURS)));
    this.credit += hello.total - this.peer.total;
    this.streams.forEach((each) => { each.credit += hello.window - this.peer.window; });
    this.peer = hello;
    this.greeted = true;
    const beat = hello.heartbeat && OURS.heartbeat ? Math.max(hello.heartbeat, OURS.heartbeat) : 0;
    if (!this.serve && beat) {
      this.timer = setInterval(() => {
        if (!this.wrote || !this.heard) this.write(frame(PING, 0, 0, Buffer.from('are you?')));
        this.wrote = this.heard = false;
      }, beat * 1000);
    }
    this.streams.forEach((each) => each.pump());
    this.onhello();
  }
  ask(head, body = null, more = {}) {
    const stream = new Stream(this, this.next);
    this.next += 2;
    this.streams.set(stream.id, stream);
    Object.assign(stream, more);
    this.write(frame(REQUEST, body === null ? END : 0, stream.id, writeRequest(head)));
    if (body !== null && body.length) stream.send(body, END);
    return stream;
  }
}

// -- a server

const operations = {
  hello(stream) { answer(stream, {serialization: 4}, Buffer.from('hello\n')); },
  echo(stream) { // streams what comes, and says what it saw
    const {head, link} = stream;
    const fields = [['x-seen', JSON.stringify({service: head.service, operation: head.operation, deadline: head.deadline, fields: head.fields})]];
    link.write(frame(RESPONSE, 0, stream.id, writeResponse({fields, length: null})));
    stream.got.forEach((piece) => stream.send(piece));
    stream.ondata = (piece) => stream.send(Buffer.from(piece));
    stream.onend = () => stream.send(Buffer.alloc(0), END, stream.trailers.length ? stream.trailers : null);
  },
  big(stream) { answer(stream, {length: 3000000}, Buffer.alloc(3000000, 'b')); },
  trailers(stream) {
    stream.link.write(frame(RESPONSE, 0, stream.id, writeResponse({})));
    stream.send(Buffer.from('one'), END, [['x-sum', '42'], ['x-pings', String(stream.link.pings)]].slice(0, stream.head.service === '1002' ? 2 : 1));
  },
  hints(stream) {
    stream.link.write(frame(RESPONSE, INTERIM, stream.id, writeResponse({http: 103, fields: [['link', '</a>']]})));
    answer(stream, {}, Buffer.from('hinted'));
  },
  aborted(stream) { stream.link.write(frame(RESPONSE, END, stream.id, writeResponse({status: 10}))); },
  teapot(stream) { stream.link.write(frame(RESPONSE, END, stream.id, writeResponse({status: 3, http: 418}))); },
  packed(stream) {
    const data = zlib.gzipSync('unpacked '.repeat(1000));
    answer(stream, {compression: 1, length: data.length}, data);
  },
  refuse(stream) { // the first time only
    if (refused++) return answer(stream, {}, Buffer.from('second'));
    return stream.cancel(2, 'not now');
  },
  wait(stream) { waiting.add(stream); stream.onend = () => stream.cancelled && gone.push(stream.cancelled); },
  broken(stream) {
    stream.link.write(frame(RESPONSE, 0, stream.id, writeResponse({length: 10})));
    stream.send(Buffer.from('some'));
    setTimeout(() => stream.cancel(4, 'disk'), 100);
  },
  gone(stream) { answer(stream, {}, Buffer.from(JSON.stringify({gone, waiting: waiting.size, links: links.size}))); },
  leave(stream) { // GOAWAY, and the rest
    const {link} = stream;
    link.write(frame(GOAWAY, 0, 0, Buffer.concat([long(stream.id), coded(0)])));
    answer(stream, {}, Buffer.from('bye'));
    setTimeout(() => link.socket.end(), 50);
  },
};
// What a service of gRPC answers: messages behind five bytes each, and grpc-status in the end.
const GRPC = [['content-type', 'application/grpc']];
Object.assign(operations, {
  Place(stream) { // each message comes back
    const {head, link} = stream;
    const mirrored = head.fields.filter(([name]) => name.startsWith('app-'));
    link.write(frame(RESPONSE, 0, stream.id, writeResponse({fields: [...GRPC, ...mirrored]})));
    stream.got.forEach((piece) => stream.send(piece));
    stream.ondata = (piece) => stream.send(Buffer.from(piece));
    stream.onend = () => stream.cancelled || stream.send(Buffer.alloc(0), END, [['grpc-status', '0'],
      ...mirrored.map(([name, value]) => [`end-${name.slice(4)}`, value])]);
  },
  Left(stream) {
    stream.link.write(frame(RESPONSE, 0, stream.id, writeResponse({fields: GRPC})));
    stream.send(message(Buffer.from(String(stream.head.deadline))), END, [['grpc-status', '0']]);
  },
  Fail(stream) { // by the status of SOTP alone
    stream.link.write(frame(RESPONSE, END, stream.id, writeResponse({status: 9, fields: GRPC})));
  },
  Half(stream) { // later than at once
    stream.link.write(frame(RESPONSE, 0, stream.id, writeResponse({fields: GRPC})));
    stream.send(message(Buffer.from('half')), END, [['grpc-status', '15'], ['grpc-message', 'the rest is lost']]);
  },
  Break(stream) {
    stream.link.write(frame(RESPONSE, 0, stream.id, writeResponse({fields: GRPC})));
    stream.send(message(Buffer.from('some')));
    setTimeout(() => stream.cancel(4, 'disk'), 100);
  },
  Wait(stream) { operations.wait(stream); },
});
function message(data) { return Buffer.concat([Buffer.from([0]), long(data.length), data]); }
function* messages(data) { for (let at = 0; at < data.length; at += 5 + data.readUInt32BE(at + 1)) yield data.subarray(at + 5, at + 5 + data.readUInt32BE(at + 1)); }

let refused = 0;
const waiting = new Set(), gone = [], links = new Set();

function answer(stream, head, data) {
  stream.link.write(frame(RESPONSE, 0, stream.id, writeResponse(head)));
  stream.send(data, END);
}

function serve() {
  const server = net.createServer((socket) => {
    const link = new Link(socket, (stream) => {
      const run = operations[stream.head.operation];
      if (run) return run(stream);
      return link.write(frame(RESPONSE, END, stream.id, writeResponse({status: 12})));
    });
    links.add(link);
    link.onclose = () => links.delete(link);
  });
  server.listen(0, '127.0.0.1', () => console.log(`listening ${server.address().port}`));
}

// -- a client

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const ended = (stream) => new Promise((done) => {
  const look = () => (stream.ended || stream.cancelled) && done(stream);
  stream.onend = look;
  look();
});
const headed = (stream) => new Promise((done) => { stream.onhead = () => stream.head && done(stream.head); if (stream.head) done(stream.head); });
async function until(look) { for (let at = 0; at < 3000; at++) { if (await look()) return true; await sleep(10); } return false; }

const ways = {
  async plain(link) {
    const one = await ended(link.ask({service: 1001, operation: 'hello'}));
    const two = await ended(link.ask({service: 'orders', operation: 'hello', fields: [['x-a', '1']]}));
    return {http: [one.head.http, two.head.http], text: [String(one.data), String(two.data)], greeted: link.greeted};
  },
  async echo(link) { // 60 at once, of many sizes, one of them over several windows
    const sizes = Array.from({length: 60}, (_, at) => (at === 7 ? 1500000 : 1 + at * 997));
    const asked = sizes.map((size, at) => link.ask({service: 1001, operation: 'echo', length: size, deadline: 20000, serialization: 1},
      Buffer.alloc(size, 65 + (at % 26))));
    const all = await Promise.all(asked.map(ended));
    const right = all.filter((each, at) => each.size === sizes[at] && each.data.every((byte) => byte === 65 + (at % 26)));
    return {right: right.length, ids: [all[0].id, all[59].id]};
  },
  async trailers(link) {
    const stream = await ended(link.ask({service: 1001, operation: 'trailers'}));
    return {text: String(stream.data), trailers: stream.trailers};
  },
  async upload(link) { // content in pieces, trailers behind it
    const stream = link.ask({service: 1001, operation: 'echo'}, Buffer.alloc(0));
    for (const word of ['one ', 'two ', 'three']) { stream.send(Buffer.from(word)); await sleep(5); }
    stream.send(Buffer.alloc(0), END, [['x-sum', '7']]);
    await ended(stream);
    return {text: String(stream.data), trailers: stream.trailers};
  },
  async hints(link) {
    const stream = await ended(link.ask({service: 1001, operation: 'hints'}));
    return {interims: stream.interims.map((each) => [each.http, each.fields[0]]), text: String(stream.data)};
  },
  async status(link) {
    const found = [];
    for (const operation of ['aborted', 'teapot', 'nothing']) {
      const {head} = await ended(link.ask({service: 1001, operation}));
      found.push([head.status, head.http]);
    }
    return {found};
  },
  async cancel(link) {
    const told = async () => JSON.parse(String((await ended(link.ask({service: 1001, operation: 'gone'}))).data));
    const before = await told();
    const stream = link.ask({service: 1001, operation: 'wait'});
    const more = async () => { const now = await told(); return [now.waiting - before.waiting, now.gone.length - before.gone.length]; };
    await until(async () => (await more())[0]);
    stream.cancel(1, 'no longer');
    await until(async () => (await more())[1]);
    const [waiting, gone] = await more();
    return {waiting, told: gone, answered: stream.head};
  },
  async deadline(link) {
    const stream = await ended(link.ask({service: 1001, operation: 'wait', deadline: 300}));
    return {head: stream.head && stream.head.status, cancelled: stream.cancelled && stream.cancelled.code};
  },
  async stall(link) { // reads nothing of 3 MB for a while, then all of it
    const stream = link.ask({service: 1001, operation: 'big'}, null, {reading: false});
    await headed(stream);
    await sleep(500);
    const stood = stream.size;
    const other = await ended(link.ask({service: 1001, operation: 'hello'}));
    stream.reading = true;
    stream.taken(0);
    await ended(stream);
    return {stood, other: String(other.data), size: stream.size};
  },
  async packed(link) {
    const stream = await ended(link.ask({service: 1001, operation: 'packed'}));
    const coding = (stream.head.fields.find((pair) => pair[0] === 'content-encoding') || [])[1];
    return {coding, text: String(zlib.gunzipSync(stream.data)).length};
  },
  async broken(link) {
    const stream = await ended(link.ask({service: 1001, operation: 'broken'}));
    return {size: stream.size, ended: stream.ended, cancelled: stream.cancelled.code};
  },
  async heartbeat(link) {
    for (let at = 0; at < 2; at++) link.write(frame(PING, 0, 0, Buffer.from('are you?')));
    await until(() => link.pongs >= 2);
    return {pongs: link.pongs >= 2, closed: Boolean(link.closed)};
  },
  async bad(link) { // a request that is none is answered, and harms no other
    const id = link.next;
    link.next += 2;
    const stream = new Stream(link, id);
    link.streams.set(id, stream);
    link.write(frame(REQUEST, END, id, Buffer.alloc(16)));
    await ended(stream);
    const other = await ended(link.ask({service: 1001, operation: 'hello'}));
    return {status: stream.head.status, problem: JSON.parse(String(stream.data)).status, other: String(other.data)};
  },
  async grpc(link) { // calls a service of gRPC, as it is
    const call = (operation, sent, deadline = 20000) => ended(link.ask({service: 'shop.Orders', operation, deadline,
      fields: [['content-type', 'application/grpc'], ['te', 'trailers'], ['app-a', 'one']]}, Buffer.concat(sent.map(message))));
    const told = (stream) => ({http: stream.head.http, status: stream.head.status, messages: [...messages(stream.data)].map(String),
      ends: stream.trailers.concat(stream.head.fields).filter(([name]) => /^(grpc-status|end-a)$/.test(name))});
    const place = told(await call('Place', [Buffer.from('an order')]));
    const chat = told(await call('Chat', [Buffer.from('one'), Buffer.alloc(100000, 'x')]));
    const [left] = told(await call('Left', [Buffer.alloc(0)])).messages;
    const waits = await call('Wait', [Buffer.from('first')], 2000);
    return {place, chat: chat.messages.map((each) => each.length), left: Number(left), fail: told(await call('Fail', [Buffer.alloc(0)])),
      lost: told(await call('Count', [Buffer.from('[1, 0, 1]')])), waits: {...told(waits), cancelled: waits.cancelled && waits.cancelled.code}};
  },
  async fault(link) {
    await until(() => link.greeted);
    link.write(Buffer.from('GET / HTTP/1.1\r\n\r\n'));
    await until(() => link.closed);
    return {goaways: link.goaways};
  },
  async drain(link) { // until the other end drains; what was asked is answered
    const stream = link.ask({service: 1001, operation: 'echo'}, Buffer.alloc(0));
    await headed(stream);
    console.error('ready');
    await until(() => link.goaways.length);
    stream.send(Buffer.from('last words'), END);
    await ended(stream);
    await until(() => link.closed);
    return {text: String(stream.data), goaways: link.goaways.map((each) => [each.last, each.code]), pings: link.pings};
  },
};

function play(port, way) {
  const socket = net.connect(port, '127.0.0.1', async () => {
    const link = new Link(socket, null);
    try {
      console.log(JSON.stringify(await ways[way](link)));
      process.exit(0);
    } catch (error) {
      console.error(error);
      process.exit(1);
    }
  });
}

// -- a strict receiver: what the bytes of a peer cause, by the table of faults

const FAULTS = {
  no_magic: ['GOAWAY', 16, 'not a frame'],
  other_version: ['GOAWAY', 22, 'a frame of another version'],
  unknown_type: ['GOAWAY', 16, 'unknown frame type'],
  unknown_flags: ['GOAWAY', 16, 'a flag that this frame does not have'],
  frame_too_large: ['GOAWAY', 21, 'the frame is larger than was announced'],
  wrong_size: ['GOAWAY', 16, 'the payload has not the size of its type'],
  no_hello: ['GOAWAY', 17, 'HELLO must come first'],
  second_hello: ['GOAWAY', 17, 'HELLO comes once'],
  hello_values: ['GOAWAY', 16, 'a value of HELLO is out of its bounds'],
  no_common_version: ['GOAWAY', 22, 'no common version'],
  wrong_stream: ['GOAWAY', 17, 'the frame stands on a wrong stream'],
  wrong_number: ['GOAWAY', 17, 'streams have odd numbers that go up'],
  never_opened: ['GOAWAY', 17, 'a stream that was never opened'],
  wrong_side: ['GOAWAY', 17, 'the frame comes from the wrong side'],
  wrong_state: ['GOAWAY', 17, 'the frame must not come in this state of its stream'],
  empty_data: ['GOAWAY', 16, 'DATA without a byte and without END'],
  credit_value: ['GOAWAY', 18, 'credit must be 1 to 2147483647'],
  credit_overflow: ['GOAWAY', 18, 'more than 2147483647 bytes of credit'],
  beyond_credit: ['GOAWAY', 18, 'more bytes than there was credit for'],
  too_long: ['CANCEL', 20, 'more bytes than the head said'],
  too_short: ['CANCEL', 20, 'fewer bytes than the head said'],
  bad_response: ['CANCEL', 19, 'the head of the response cannot be read'],
  bad_trailers: ['CANCEL', 19, 'the trailers cannot be read'],
  many_interims: ['CANCEL', 21, 'too many interim responses'],
};
const MOST = [1024, 75264, 75264, 65536, 75264, 4, 257, 8, 8, 261];
const LEAST_SIZES = {[HELLO]: 28, [CREDIT]: 4, [CANCEL]: 2, [PING]: 8, [PONG]: 8, [GOAWAY]: 6};
const LARGEST = 2147483647;

class Judge {
  constructor(server) {
    Object.assign(this, {server, greeted: false, newest: 0, credit: LEAST.total, peer: LEAST, streams: new Map()});
    if (!server) this.open(1, {state: 'HEAD', method: 'POST'});
  }
  open(id, stream) {
    this.newest = id;
    this.streams.set(id, {credit: this.peer.window, room: 65536, interims: 0, ...stream});
  }
  judge(data) { // the name of the first fault, or undefined
    for (let at = 0; at < data.length;) {
      const [type, flags, size, id] = [data[at + 3], data[at + 4], data.readUIntBE(at + 5, 3), data.readUInt32BE(at + 8)];
      if (data.readUInt16BE(at) !== 0xd550) return 'no_magic';
      if (data[at + 2] !== 1) return 'other_version';
      if (type > GOAWAY && type < 128) return 'unknown_type';
      const allowed = [0, END, END | INTERIM, END][type] ?? 0;
      if (type <= GOAWAY && flags & ~allowed) return 'unknown_flags';
      if (size > (MOST[type] ?? 1024)) return 'frame_too_large';
      if (size < (LEAST_SIZES[type] ?? 0)) return 'wrong_size';
      const fault = this.take(type, flags, id, data.subarray(at + 12, at += 12 + size));
      if (fault) return fault;
    }
    return undefined;
  }
  take(type, flags, id, payload) {
    if (!this.greeted && type !== HELLO && (this.server || type !== GOAWAY)) return 'no_hello';
    if (type > GOAWAY) return '';
    if ([HELLO, PING, PONG, GOAWAY].includes(type) ? id : !id && ![REQUEST, CREDIT].includes(type)) return 'wrong_stream';
    if (type === HELLO) return this.greet(readHello(payload));
    if (type === REQUEST) return this.request(flags, id, payload);
    if (type === RESPONSE && this.server) return 'wrong_side';
    if (type === CREDIT && (!payload.readUInt32BE(0) || payload.readUInt32BE(0) > LARGEST)) return 'credit_value';
    if (type === CREDIT && !id) return (this.credit += payload.readUInt32BE(0)) > LARGEST ? 'credit_overflow' : '';
    if (!id) return '';
    if (id > this.newest || id % 2 === 0) return 'never_opened';
    const stream = this.streams.get(id);
    if (type === DATA && !payload.length && !flags) return 'empty_data';
    if (!stream) return ''; // it is over
    if (type === CREDIT) return (stream.credit += payload.readUInt32BE(0)) > LARGEST ? 'credit_overflow' : '';
    if (type === CANCEL) return this.streams.delete(id) && '';
    if (type === RESPONSE) return this.response(flags, id, stream, payload);
    if (stream.state !== 'BODY') return 'wrong_state';
    if (type === DATA) {
      if ((stream.room -= payload.length) < 0) return 'beyond_credit';
      if (stream.due !== null && (stream.due -= payload.length) < 0) return 'too_long';
    } else {
      try { readTrailers(payload); } catch (error) { return 'bad_trailers'; }
      if (stream.tunnel) return 'bad_trailers';
    }
    if (type === TRAILERS || flags & END) {
      stream.state = 'DONE';
      if (stream.due) return 'too_short';
    }
    return '';
  }
  greet(hello) {
    if (this.greeted) return 'second_hello';
    const low = ['window', 'total', 'data', 'heads'].some((name) => hello[name] < LEAST[name]);
    if (hello.lowest > hello.highest || low || hello.window > LARGEST || hello.total > LARGEST) return 'hello_values';
    if (hello.lowest > 1 || hello.highest < 1) return 'no_common_version';
    this.greeted = true;
    this.credit += hello.total - LEAST.total;
    this.streams.forEach((stream) => { stream.credit += hello.window - LEAST.window; });
    this.peer = hello;
    return '';
  }
  request(flags, id, payload) {
    if (!this.server) return 'wrong_side';
    if (id % 2 === 0 || id <= this.newest || id > LARGEST) return 'wrong_number';
    this.newest = id;
    try {
      const head = readRequest(payload);
      this.open(id, {state: flags & END ? 'DONE' : 'BODY', due: head.length, tunnel: head.upgrade});
    } catch (error) { /* it is answered, and over */ }
    return '';
  }
  response(flags, id, stream, payload) {
    if (stream.state !== 'HEAD') return 'wrong_state';
    let head;
    try { head = readResponse(payload); } catch (error) { return 'bad_response'; }
    if (flags & INTERIM) {
      if (flags & END || head.http > 199 || head.http === 101) return 'bad_response';
      return ++stream.interims > 16 ? 'many_interims' : '';
    }
    if (head.http < 200) return 'bad_response';
    if (!(flags & END) && ([204, 205, 304].includes(head.http) || stream.method === 'HEAD')) return 'bad_response';
    if (flags & END && head.length && head.http !== 304 && stream.method !== 'HEAD') return 'too_short';
    if (flags & END) return this.streams.delete(id) && '';
    Object.assign(stream, {state: 'BODY', due: head.length});
    return '';
  }
}

// -- the vectors

function vectors(file) {
  const all = JSON.parse(fs.readFileSync(file));
  const wrong = [];
  const same = (name, got, wanted) => { if (JSON.stringify(got) !== JSON.stringify(wanted)) wrong.push([name, got, wanted]); };
  const bytes = (each) => Buffer.from(each.hex, 'hex');
  const without = ({name, hex, ...rest}) => rest;
  const fails = (name, run) => { try { run(); wrong.push([name, 'was read']); } catch (error) { if (!(error instanceof Bad)) throw error; } };
  for (const each of all.frames) {
    const [one] = [...frames(bytes(each))];
    same(each.name, {type: one.type, flags: one.flags, stream: one.stream, payload: one.payload.toString('hex')}, without(each));
    same(each.name, frame(one.type, one.flags, one.stream, one.payload).toString('hex'), each.hex);
  }
  for (const each of all.hellos) same(each.name, readHello(bytes(each)), without(each));
  for (const each of all.requests) {
    const {operation, ...head} = readRequest(bytes(each));
    const wanted = without(each);
    for (const key of Object.keys(wanted)) same(`${each.name}: ${key}`, head[key], wanted[key]);
  }
  for (const each of all['bad requests']) fails(each.name, () => readRequest(bytes(each)));
  for (const each of all.responses) {
    const {status, ...head} = readResponse(bytes(each));
    const wanted = without(each);
    for (const key of Object.keys(wanted)) same(`${each.name}: ${key}`, head[key], wanted[key]);
  }
  for (const each of all['bad responses']) fails(each.name, () => readResponse(bytes(each)));
  for (const each of all.trailers) {
    same(each.name, readTrailers(bytes(each)), each.fields);
    same(each.name, writeTrailers(each.fields).toString('hex'), each.hex);
  }
  for (const each of all.faults) {
    const fault = new Judge(each.to === 'server').judge(bytes(each));
    same(`${each.fault} to the ${each.to}: ${each.hex}`, [fault, ...FAULTS[fault] ?? []], [each.fault, each.answer, each.number, each.text]);
  }
  const count = ['frames', 'hellos', 'requests', 'bad requests', 'responses', 'bad responses', 'trailers', 'faults'];
  console.log(JSON.stringify({checked: count.reduce((sum, key) => sum + all[key].length, 0), wrong}));
}

const [, , what, first, second] = process.argv;
if (what === 'vectors') vectors(first);
else if (what === 'server') serve();
else play(Number(first), second);
