// Node's http client against http://127.0.0.1:PORT: node client.js PORT agent|pipeline|continue|abort.
// Prints one JSON object.
'use strict';
const http = require('node:http');
const net = require('node:net');

const port = Number(process.argv[2]);
const host = '127.0.0.1';

function ask(options, body) {
  return new Promise((done, failed) => {
    const request = http.request({host, port, ...options}, (response) => {
      let text = '';
      response.setEncoding('latin1');
      response.on('data', (piece) => (text += piece));
      response.on('error', failed);
      response.on('end', () => done({status: response.statusCode, text, reused: request.reusedSocket}));
    });
    request.on('error', failed);
    if (Array.isArray(body)) {
      for (const piece of body) request.write(piece);
      request.end();
    } else request.end(body);
  });
}

const ways = {
  // 200 requests of several kinds over at most 4 connections that are kept
  async agent() {
    const agent = new http.Agent({keepAlive: true, maxSockets: 4});
    const kinds = [
      () => ask({agent, path: '/hello'}).then((it) => it.text === 'hello\n'),
      () => ask({agent, path: '/chunks/5'}).then((it) => it.text.endsWith('chunk 4\n')),
      () => ask({agent, path: '/echo', method: 'POST'}, 'sized').then((it) => it.text === 'sized'),
      () => ask({agent, path: '/echo', method: 'PUT'}, ['in ', 'chunks']).then((it) => it.text === 'in chunks'),
      () => ask({agent, path: '/empty'}).then((it) => it.status === 204 && it.text === ''),
      () => ask({agent, path: '/bytes/9', method: 'HEAD'}).then((it) => it.text === ''),
    ];
    const sockets = new Set();
    agent.on('free', (socket) => sockets.add(socket));
    const right = await Promise.all(Array.from({length: 200}, (_, index) => kinds[index % kinds.length]()));
    agent.destroy();
    return {right: right.filter(Boolean).length, sockets: sockets.size};
  },
  // 30 requests in two writes that end in the middle of a head; the answers must come in their order
  pipeline() {
    return new Promise((done, failed) => {
      const paths = Array.from({length: 30}, (_, index) => (index % 3 ? `/bytes/${index + 1}` : `/chunks/${1 + (index % 5)}`));
      const heads = paths.map((path, index) => {
        const last = index === paths.length - 1 ? 'Connection: close\r\n' : '';
        return `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${last}\r\n`;
      });
      const all = heads.join('');
      const socket = net.connect(port, host, () => {
        socket.setNoDelay(true);
        socket.write(all.slice(0, all.length / 2 + 5), () => socket.write(all.slice(all.length / 2 + 5)));
      });
      let text = '';
      socket.setEncoding('latin1');
      socket.on('data', (piece) => (text += piece));
      socket.on('error', failed);
      socket.on('close', () => {
        const kinds = text.split('HTTP/1.1 200 OK\r\n').slice(1);
        const lengths = kinds.map((it) => Number((/content-length: (\d+)/i.exec(it) || [0, -1])[1]));
        const wanted = paths.map((_, index) => (index % 3 ? index + 1 : -1));
        done({answers: kinds.length, inOrder: JSON.stringify(lengths) === JSON.stringify(wanted)});
      });
    });
  },
  // the body waits for the 100
  continue() {
    return new Promise((done, failed) => {
      let continued = false;
      const headers = {expect: '100-continue', 'content-length': 5};
      const request = http.request({host, port, path: '/echo', method: 'POST', headers}, (response) => {
        response.setEncoding('latin1');
        let text = '';
        response.on('data', (piece) => (text += piece));
        response.on('end', () => done({continued, text}));
      });
      request.on('continue', () => {
        continued = true;
        request.end('after');
      });
      request.on('error', failed);
      request.flushHeaders();
    });
  },
};

ways[process.argv[3]]().then(
  (found) => console.log(JSON.stringify(found)),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
