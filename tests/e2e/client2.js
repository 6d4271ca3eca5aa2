// A client on Node's own http2, for the tests beside it: node client2.js SCENARIO URL PREFIX [CA]
// Prints what has happened as one line of JSON.  PREFIX is the beginning of every path.
'use strict';
const crypto = require('node:crypto');
const fs = require('node:fs');
const http2 = require('node:http2');

const [scenario, url, prefix, ca] = process.argv.slice(2);
const options = ca ? {ca: fs.readFileSync(ca), servername: 'shop.test'} : {};
const session = http2.connect(url, {...options, settings: {enablePush: true, initialWindowSize: 200000}});
session.on('error', (error) => finish({error: String(error)}));

const sha = (data) => crypto.createHash('sha256').update(data).digest('hex');

// What becomes of one request: status, fields, interim answers, body, trailers, or the code of the reset.
function ask(fields, body, trailers) {
  return new Promise((done) => {
    const told = {interim: [], body: null, trailers: null};
    const pieces = [];
    const stream = session.request({':authority': 'shop.test', ...fields},
      {endStream: body === undefined, waitForTrailers: trailers !== undefined});
    stream.on('headers', (found) => told.interim.push({...found}));
    stream.on('response', (found) => Object.assign(told, {status: found[':status'], fields: {...found}}));
    stream.on('data', (data) => pieces.push(data));
    stream.on('trailers', (found) => (told.trailers = {...found}));
    stream.on('error', () => {});
    stream.on('close', () => done({...told, body: Buffer.concat(pieces), code: stream.rstCode}));
    if (trailers !== undefined) stream.on('wantTrailers', () => stream.sendTrailers(trailers));
    if (body !== undefined) stream.end(body);
  });
}

const text = (told) => ({...told, body: told.body.toString()});
const path = (rest) => ({':path': prefix + rest});

function finish(result) {
  console.log(JSON.stringify(result));
  session.destroy();
  process.exit(0);
}

const scenarios = {
  async get() {
    return text(await ask(path('/echo')));
  },
  async many() {
    const all = [];
    for (let index = 0; index < 100; index++) {
      all.push(index % 2 ? ask(path('/bytes/10000')) : ask({...path(`/echo?${index}`), ':method': 'POST'}, `${index}`));
    }
    const told = await Promise.all(all);
    const right = told.filter((one, index) =>
      one.status === 200 && (index % 2 ? one.body.length === 10000 : one.body.toString() === `${index}`));
    return {right: right.length};
  },
  async large() {
    const body = crypto.randomBytes(5000000);
    const told = await ask({...path('/echo'), ':method': 'POST'}, body);
    const down = await ask(path('/bytes/5000000'));
    return {status: told.status, same: sha(told.body) === sha(body), down: down.body.length};
  },
  async apart() {
    const body = crypto.randomBytes(5000000);
    const told = text(await ask({...path('/sum'), ':method': 'POST'}, body));
    const down = await ask(path('/bytes/5000000'));
    return {status: told.status, same: told.body === sha(body), down: down.body.length};
  },
  async trailers() {
    const up = await ask({...path('/echo'), ':method': 'POST', te: 'trailers'}, 'body', {'x-check': 'abc'});
    return {up: text(up), down: text(await ask({...path('/trailers'), te: 'trailers'}))};
  },
  async hints() {
    return text(await ask(path('/hints')));
  },
  async refuse() {
    return text(await ask({...path('/refuse'), ':method': 'POST'}, Buffer.alloc(300000)));
  },
  async reset() {
    return {by: text(await ask(path('/reset'))), after: text(await ask(path('/echo')))};
  },
  async lost() {
    return {by: text(await ask(path('/lost'))), after: text(await ask(path('/echo')))};
  },
  async leave() {
    const stream = session.request(path('/hold'));
    stream.on('error', () => {});
    await new Promise((done) => stream.on('data', done));
    stream.close(http2.constants.NGHTTP2_CANCEL);
    for (let tries = 0; tries < 200; tries++) {
      const told = text(await ask(path('/gone')));
      if (!['0', '[]'].includes(told.body)) return told;
      await new Promise((done) => setTimeout(done, 50));
    }
    return {body: 'never'};
  },
  async push() {
    let pushed = 0;
    session.on('stream', () => pushed++);
    return {...text(await ask(path('/push'))), pushed};
  },
  async tunnel() {
    if (!session.remoteSettings?.enableConnectProtocol) {
      await new Promise((done) => session.once('remoteSettings', done));
    }
    const stream = session.request({':method': 'CONNECT', ':protocol': 'websocket', ':scheme': ca ? 'https' : 'http',
      ':authority': 'shop.test', ...path('/tunnel'), 'sec-websocket-version': '13'}, {endStream: false});
    const told = {status: 0, body: ''};
    stream.on('response', (found) => (told.status = found[':status']));
    let look = () => {};
    const wait = (length) => new Promise((done) => {
      look = () => told.body.length >= length && done();
      look();
    });
    stream.setEncoding('latin1');
    stream.on('data', (data) => ((told.body += data), look()));
    await wait(8);
    stream.write('x'.repeat(100000));
    await wait(100008);
    stream.end();
    await new Promise((done) => stream.on('close', done));
    return {status: told.status, body: told.body.replaceAll('x', ''), length: told.body.length, code: stream.rstCode};
  },
  ping: () => new Promise((done) => session.ping((error) => done({error: error ? String(error) : null}))),
};

session.on('connect', () => scenarios[scenario]().then(finish));
setTimeout(() => finish({error: 'too late'}), 30000).unref();
