// SPDX-License-Identifier: Apache-2.0
// node calls.mjs HOST:PORT [CA_FILE]: gRPC's interoperability cases by grpc-js, each in a line. Exit code 1 if one fails.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';

const [target, authorities] = process.argv.slice(2);
const { TestService } = grpc.loadPackageDefinition(
  loader.loadSync(new URL('./testing.proto', import.meta.url).pathname, { keepCase: true }),
).grpc.testing;
const credentials = authorities
  ? grpc.credentials.createSsl(readFileSync(authorities))
  : grpc.credentials.createInsecure();
const client = new TestService(target, credentials);
const zeros = (size) => ({ body: Buffer.alloc(size) });

const unary = (method, request, options = {}) =>
  new Promise((resolve, reject) => {
    client[method](request, options, (error, reply) => (error ? reject(error) : resolve(reply)));
  });

const collected = (call) =>
  new Promise((resolve, reject) => {
    const sizes = [];
    call.on('data', (reply) => sizes.push(reply.payload.body.length));
    call.on('error', reject);
    call.on('end', () => resolve(sizes));
  });

const code = (expected) => (error) => error.code === expected;
const sizes = [31415, 9, 2653, 58979];

const cases = {
  empty_unary: () => unary('EmptyCall', {}),
  large_unary: async () => {
    const reply = await unary('UnaryCall', { response_size: 314159, payload: zeros(271828) });
    assert.equal(reply.payload.body.length, 314159);
  },
  client_streaming: () =>
    new Promise((resolve, reject) => {
      const call = client.StreamingInputCall((error, reply) => {
        if (error) reject(error);
        else resolve(assert.equal(reply.aggregated_payload_size, 74922));
      });
      for (const size of [27182, 8, 1828, 45904]) call.write({ payload: zeros(size) });
      call.end();
    }),
  server_streaming: async () => {
    const call = client.StreamingOutputCall({ response_parameters: sizes.map((size) => ({ size })) });
    assert.deepEqual(await collected(call), sizes);
  },
  ping_pong: async () => {
    const call = client.FullDuplexCall();
    const found = [];
    const ended = new Promise((resolve, reject) => call.on('end', resolve).on('error', reject));
    call.on('data', (reply) => {
      found.push(reply.payload.body.length);
      if (found.length === sizes.length) call.end();
      else call.write({ response_parameters: [{ size: sizes[found.length] }], payload: zeros(8) });
    });
    call.write({ response_parameters: [{ size: sizes[0] }], payload: zeros(27182) });
    await ended;
    assert.deepEqual(found, sizes);
  },
  empty_stream: async () => {
    const call = client.FullDuplexCall();
    call.end();
    assert.deepEqual(await collected(call), []);
  },
  timeout_on_sleeping_server: () => {
    const call = client.FullDuplexCall({ deadline: Date.now() + 50 });
    call.write({ response_parameters: [{ size: 1, interval_us: 5_000_000 }], payload: zeros(1) });
    return assert.rejects(collected(call), code(grpc.status.DEADLINE_EXCEEDED));
  },
  cancel_after_begin: () => {
    const call = client.FullDuplexCall();
    call.cancel();
    return assert.rejects(collected(call), code(grpc.status.CANCELLED));
  },
  cancel_after_first_response: () => {
    const call = client.FullDuplexCall();
    call.on('data', () => call.cancel());
    call.write({ response_parameters: [{ size: 31415 }], payload: zeros(27182) });
    return assert.rejects(collected(call), code(grpc.status.CANCELLED));
  },
  status_code_and_message: async () => {
    const status = { code: 2, message: 'test status message' };
    await assert.rejects(unary('UnaryCall', { response_status: status }), { code: 2, details: status.message });
    const call = client.FullDuplexCall();
    call.write({ response_status: status });
    call.end();
    await assert.rejects(collected(call), { code: 2, details: status.message });
  },
  special_status_message: () => {
    const message = '\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n';
    return assert.rejects(unary('UnaryCall', { response_status: { code: 2, message } }), { code: 2, details: message });
  },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
    console.log(`${name}: passed`);
  } catch (error) {
    failed = 1;
    console.log(`${name}: FAILED: ${error.stack}`);
  }
}

process.exit(failed); // a call that was cut short may keep a timer
