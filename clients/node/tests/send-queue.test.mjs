// SPDX-License-Identifier: Apache-2.0
// The send queue, step by step: batches, window, outcomes, retries, splits, and appends that move to another address.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ReputError } from "../dist/core/errors.js";
import { Bench, chances, LINE_CUT, NO_LINE, refused, storedOutcome } from "./support.mjs";

const FULL = refused("RESOURCE_EXHAUSTED", "STORE_FULL");
const letters = (text) => [...text];

test("a batch waits for company, at most for the linger time after its first message", () => {
  const bench = new Bench();
  assert.equal(bench.add(["a"]), true);
  assert.equal(bench.pop(), undefined);
  assert.equal(bench.queue.waitMs(0), 5);
  bench.nowMs = 4;
  assert.equal(bench.add(["b"]), false);
  assert.equal(bench.pop(), undefined);
  bench.nowMs = 5;
  assert.deepEqual(bench.pop(), ["a", "b"]);
  assert.equal(bench.pop(), undefined);
  assert.equal(bench.queue.waitMs(5), undefined);
});

test("a caller that waits ends the linger of its batch only, also from outside of the window", () => {
  const bench = new Bench({ windowBytes: 100 });
  const entries = [];
  const { add } = bench.queue;
  bench.queue.add = function (entry, nowMs) {
    entries.push(entry);
    return add.call(this, entry, nowMs);
  };
  bench.add(["a"]);
  assert.equal(bench.queue.waitMs(0), 5);
  assert.equal(bench.queue.hurry(entries[0]), true);
  assert.equal(bench.queue.hurry(entries[0]), false);
  assert.equal(bench.queue.waitMs(0), 0);
  bench.add(["b"]);
  assert.deepEqual(bench.popAll(), [["a", "b"]]);
  bench.add(["c"]);
  assert.equal(bench.queue.hurry(entries[0]), false);
  assert.equal(bench.pop(), undefined);
  bench.add(["d"], 90);
  bench.add(["e"], 10);
  assert.equal(bench.queue.hurry(entries[4]), false);
  assert.deepEqual(bench.popAll(), [["c"]]);
  bench.answer(["a", "b"], ["c"]);
  assert.deepEqual(bench.popAll(), [["d"], ["e"]]);
});

test("a batch is ready when it is full, or when the next message does not fit any more", () => {
  const bench = new Bench();
  bench.add(letters("abcde"));
  assert.deepEqual(bench.popAll(), [letters("abcd")]);
  bench.add(["f"], 70);
  assert.deepEqual(bench.popAll(), [["e"]]);
});

test("a batch has at most 32,768 messages", () => {
  const bench = new Bench({ batchSizeBytes: 8 << 20, windowBytes: 8 << 20 });
  bench.add(Array.from({ length: 32_769 }, (_, index) => `m${index}`), 1);
  assert.deepEqual(bench.popAll().map((batch) => batch.length), [32_768]);
});

test("a message larger than a batch travels alone", () => {
  const bench = new Bench();
  bench.add(["a"]);
  bench.add(["b"], 120);
  bench.add(["c"]);
  bench.queue.closeBatch();
  assert.deepEqual(bench.popAll(), [["a"], ["b"], ["c"]]);
});

test("messages beyond the window wait outside, and come in as others are settled, in order", () => {
  const bench = new Bench({ windowBytes: 100 });
  bench.add(letters("abc"));
  assert.equal(bench.queue.hasRoom, true);
  bench.add(["d"], 41);
  bench.add(["e"], 10); // would fit, but may not overtake
  assert.equal(bench.queue.hasRoom, false);
  assert.deepEqual(bench.popAll(), [letters("abc")]); // at once: no message can enter it
  bench.answer(letters("abc"));
  bench.nowMs = 5;
  assert.deepEqual(bench.popAll(), [["d", "e"]]);
  bench.answer(["d", "e"]);
  assert.equal(bench.queue.isIdle, true);
});

test("one message of any size may enter an empty window", () => {
  const bench = new Bench({ windowBytes: 100 });
  bench.add(["a"], 5000);
  bench.add(["b"], 5000);
  assert.deepEqual(bench.popAll(), [["a"]]);
  bench.answer(["a"]);
  assert.deepEqual(bench.popAll(), [["b"]]);
  assert.equal(bench.queue.isIdle, false);
});

test("each message gets its own columns, batches in the order in which they were taken", () => {
  const bench = new Bench();
  bench.add(letters("abcde"));
  bench.queue.closeBatch();
  bench.answer(...bench.popAll());
  assert.deepEqual(letters("abcde").map((name) => bench.outcomes.get(name).queueOffset), [0, 1, 2, 3, 4]);
  const result = bench.outcomes.get("c");
  assert.equal(result.uniqueId, "c");
  assert.equal(result.durability, "LOCAL_DISK");
  assert.equal(result.storeTimeMs, 5);
  assert.equal(result.offsetMessageId, "7F00000100001BBD0000000000000002");
});

test("what is refused for a passing reason goes again after a pause, in its old order and before younger ones", () => {
  const bench = new Bench();
  bench.add(letters("abcdefghij"));
  bench.queue.closeBatch();
  assert.deepEqual([bench.pop(), bench.pop()], [letters("abcd"), letters("efgh")]);
  bench.answer(FULL, FULL);
  assert.equal(bench.pop(), undefined);
  assert.equal(bench.queue.waitMs(0), 1000);
  bench.nowMs = 1000;
  assert.deepEqual(bench.sendAll(), [letters("abcd"), letters("efgh"), letters("ij")]);
  assert.deepEqual(new Set(Object.values(bench.summary)), new Set(["stored"]));
});

test("batches behind a refused batch wait for it, and count no attempt", () => {
  const behind = refused("ABORTED", "AFTER_REFUSAL");
  const bench = new Bench({ retries: 1 });
  bench.add(letters("abcdefghijklmnop"));
  const take = () => bench.queue.pop(bench.nowMs);
  assert.deepEqual([take(), take(), take()].map((batch) => batch.needsPrevious), [false, true, true]);
  bench.answer(FULL);
  bench.nowMs = 1000;
  for (let outcome = 0; outcome < 2; outcome++) {
    assert.equal(take(), undefined);
    assert.equal(bench.queue.waitMs(1000), undefined);
    bench.answer(behind);
  }
  const again = take();
  assert.deepEqual(again.entries.map((entry) => entry.uniqueId), letters("abcd"));
  assert.deepEqual([again.needsPrevious, again.attempt], [false, 1]);
  assert.equal(take(), undefined); // no batch is stored yet
  bench.answer(letters("abcd"));
  const [next, last] = [take(), take()];
  assert.deepEqual([next.needsPrevious, last.needsPrevious, last.attempt], [false, true, 0]);
  bench.answer(refused("INVALID_ARGUMENT", "MESSAGE_TOO_LARGE", { field: "messages[1].body" }), behind);
  assert.deepEqual(bench.sendAll(), [letters("egh"), letters("ijkl"), letters("mnop")]);
  assert.deepEqual(bench.stored, letters("abcdeghijklmnop"));
  assert.equal(bench.summary.f, "MESSAGE_TOO_LARGE");
});

test("a batch that needs no other is not sent again", () => {
  const bench = new Bench();
  bench.add(letters("abcd"));
  bench.pop();
  bench.answer(refused("ABORTED", "AFTER_REFUSAL"));
  bench.nowMs = 100_000;
  assert.equal(bench.queue.pop(bench.nowMs), undefined);
  assert.deepEqual(new Set(Object.values(bench.summary)), new Set(["AFTER_REFUSAL"]));
});

test("a delay is never shorter than what the server asks for", () => {
  const bench = new Bench();
  bench.add(letters("abcd"));
  bench.pop();
  bench.answer(refused("RESOURCE_EXHAUSTED", "WINDOW_FULL", { retryAfterMs: 2500 }));
  assert.equal(bench.queue.waitMs(0), 2500);
});

test("after the last retry messages fail with the server's own error", () => {
  const bench = new Bench({ retries: 2 });
  bench.add(["a"]);
  for (let attempt = 0; attempt < 3; attempt++) {
    bench.nowMs += 10_000;
    assert.deepEqual(bench.pop(), ["a"]);
    bench.answer(FULL);
  }
  assert.deepEqual(bench.summary, { a: "STORE_FULL" });
  assert.equal(bench.queue.isIdle, true);
});

test("what has no outcome when the line is cut goes again, before what is younger", () => {
  const bench = new Bench();
  bench.add(letters("abcdefghi"));
  bench.popAll();
  bench.answer(letters("abcd"));
  bench.cut();
  bench.queue.closeBatch();
  bench.nowMs = 1000;
  assert.deepEqual(bench.sendAll(), [letters("efgh"), ["i"]]);
});

test("without retries what was sent is unknown, and what was not sent is still sent", () => {
  const bench = new Bench({ retries: 0 });
  bench.add(letters("abcde"));
  bench.pop();
  bench.cut();
  assert.deepEqual(bench.summary, { a: "unknown", b: "unknown", c: "unknown", d: "unknown" });
  assert.match(bench.outcomes.get("a").message, /may or may not be stored/);
  bench.queue.closeBatch();
  assert.deepEqual(bench.pop(), ["e"]);
});

for (const [errors, word] of [
  [[NO_LINE, NO_LINE], "UNAVAILABLE"],
  [[LINE_CUT, NO_LINE], "unknown"],
  [[NO_LINE, LINE_CUT], "unknown"],
  [[new ReputError("no token", { code: "UNAUTHENTICATED" })], "UNAUTHENTICATED"],
  [[LINE_CUT, new ReputError("no token", { code: "UNAUTHENTICATED" })], "unknown"],
  [[new ReputError("bug", { code: "INTERNAL" })], "unknown"],
  [[LINE_CUT, FULL], "unknown"],
]) {
  test(`an outcome is unknown if one of the attempts may have reached the server: ${word}`, () => {
    const bench = new Bench({ retries: 1 });
    bench.add(letters("abcd"));
    for (const error of errors) {
      bench.pop();
      if (error instanceof ReputError) bench.cut(error);
      else bench.answer(error);
      bench.nowMs += 2000;
    }
    assert.deepEqual(bench.summary, { a: word, b: word, c: word, d: word });
  });
}

for (const [error, failed] of [
  [refused("INVALID_ARGUMENT", "MESSAGE_TOO_LARGE", { field: "messages[2].body" }), ["c1"]],
  [refused("INVALID_ARGUMENT", "BAD_PROPERTIES", { metadata: { field: "messages[0].properties" } }), ["a1"]],
  [refused("PERMISSION_DENIED", "TOPIC_FORBIDDEN", { metadata: { topic: "a" } }), ["a1", "a2"]],
  [refused("NOT_FOUND", "TOPIC_NOT_FOUND", { field: "messages[1].topic", metadata: { topic: "a" } }), ["b1"]],
  [refused("INVALID_ARGUMENT", "BAD_TOPIC_NAME", { field: "messages[3].topic" }), ["a1", "a2"]],
  [refused("FAILED_PRECONDITION", "TOPIC_SET_APART", { field: "messages[2].topic" }), ["c1"]],
  [refused("FAILED_PRECONDITION", "STORE_SEALED"), ["a1", "b1", "c1", "a2"]],
  [refused("NOT_FOUND", "TOPIC_NOT_FOUND", { metadata: { topic: "z" } }), ["a1", "b1", "c1", "a2"]],
]) {
  test(`a refusal takes out what it names: ${failed}`, () => {
    const bench = new Bench();
    const names = ["a1", "b1", "c1", "a2"];
    bench.add(names);
    bench.pop();
    bench.answer(error);
    assert.deepEqual([...bench.outcomes.keys()], failed);
    const rest = names.filter((name) => !failed.includes(name));
    assert.deepEqual(bench.popAll(), rest.length > 0 ? [rest] : []);
    if (rest.length > 0) bench.answer(rest);
    assert.equal(bench.queue.isIdle, true);
  });
}

test("a bad message that nobody names is found by halving", () => {
  const bench = new Bench({ batchSizeBytes: 1000 });
  bench.add(letters("abcdefgh"));
  bench.queue.closeBatch();
  for (let names = bench.pop(); names !== undefined; names = bench.pop()) {
    bench.answer(names.includes("f") ? refused("INVALID_ARGUMENT", "BATCH_TOO_LARGE") : names);
  }
  assert.deepEqual(bench.stored, letters("abcdegh"));
  assert.equal(bench.summary.f, "BATCH_TOO_LARGE");
});

test("NOT_LEADER ends the stream once nothing is in flight; until then nothing is handed out", () => {
  const bench = new Bench();
  bench.add(letters("abcdefghijkl"));
  assert.deepEqual([bench.pop(), bench.pop()], [letters("abcd"), letters("efgh")]);
  bench.answer(refused("UNAVAILABLE", "NOT_LEADER", { metadata: { leader: "c:1" } }));
  bench.nowMs = 5000;
  assert.equal(bench.queue.takeMoved(), undefined);
  assert.equal(bench.pop(), undefined);
  assert.equal(bench.queue.waitMs(5000), undefined);
  bench.answer(letters("efgh"));
  assert.equal(bench.queue.takeMoved().metadata.leader, "c:1");
  assert.equal(bench.queue.takeMoved(), undefined);
  assert.deepEqual(bench.popAll(), [letters("abcd"), letters("ijkl")]);
});

test("a stream that broke has nothing to say about where the next one goes", () => {
  const bench = new Bench();
  bench.add(letters("abcdefgh"));
  bench.popAll();
  bench.answer(refused("UNAVAILABLE", "NOT_LEADER"));
  bench.cut();
  assert.equal(bench.queue.takeMoved(), undefined);
  bench.nowMs = 1000;
  assert.equal(bench.sendAll().length, 2);
});

test("LEASE_OVER ends the stream, and its messages are sent again as after a stream that broke", () => {
  const bench = new Bench();
  bench.add(letters("abcd"));
  bench.pop();
  bench.answer(refused("UNAVAILABLE", "LEASE_OVER"));
  assert.deepEqual(bench.summary, {});
  assert.equal(bench.queue.takeMoved().reason, "LEASE_OVER");
  bench.nowMs = 1e9;
  assert.deepEqual(bench.pop(), letters("abcd"));
  const once = new Bench({ retries: 0 });
  once.add(letters("abcd"));
  once.pop();
  once.answer(refused("UNAVAILABLE", "LEASE_OVER"));
  assert.deepEqual(once.summary, { a: "unknown", b: "unknown", c: "unknown", d: "unknown" });
});

test("a leader that is named is followed at once, which is no failed attempt, but not for ever", () => {
  const bench = new Bench({ retries: 0 });
  bench.add(letters("abcd"));
  for (let answers = 0; answers < 4; answers++) {
    assert.deepEqual(bench.pop(), letters("abcd"));
    bench.answer(refused("UNAVAILABLE", "NOT_LEADER", { metadata: { leader: "c:1" } }));
    bench.queue.takeMoved();
  }
  assert.deepEqual(new Set(Object.values(bench.summary)), new Set(["NOT_LEADER"]));
});

const HALF = storedOutcome(1);
const NO_PORT = storedOutcome(2);
NO_PORT.result.storeHost.port = -1;
const BAD_DETAILS = { error: { code: 3, message: "", details: [{ typeUrl: "x/google.rpc.ErrorInfo", value: Buffer.of(255) }] } };
for (const [name, outcome] of Object.entries({ HALF, NO_PORT, BAD_DETAILS, EMPTY: {} })) {
  test(`an answer that can't be right settles nothing: ${name}`, () => {
    const bench = new Bench();
    bench.add(["a", "b"]);
    bench.queue.closeBatch();
    bench.pop();
    assert.throws(() => bench.queue.onOutcomes([outcome], 0));
    assert.equal(bench.outcomes.size, 0);
    bench.cut(new ReputError("nonsense", { code: "INTERNAL" }));
    assert.deepEqual(bench.summary, { a: "unknown", b: "unknown" });
  });
}

test("more outcomes than batches can't be right", () => {
  assert.throws(() => new Bench().queue.onOutcomes([storedOutcome(1)], 0), /more batches/);
});

test("a level of durability that is unknown here is left out", () => {
  const bench = new Bench();
  bench.add(letters("abcd"));
  bench.pop();
  const outcome = storedOutcome(4);
  outcome.result.durability = 99;
  bench.queue.onOutcomes([outcome], 0);
  assert.equal(bench.outcomes.get("a").durability, undefined);
});

test("giving up settles what is outside, open, ready and in flight; only the last is unknown", () => {
  const bench = new Bench({ windowBytes: 200 });
  bench.add(letters("abcdefghijkl"));
  bench.pop();
  bench.queue.failAll(new ReputError("closed", { code: "CANCELLED" }));
  assert.deepEqual(Object.keys(bench.summary).sort(), letters("abcdefghijkl"));
  assert.deepEqual([bench.summary.a, bench.summary.e, bench.summary.l], ["unknown", "CANCELLED", "CANCELLED"]);
  assert.equal(bench.queue.isIdle, true);
});

test("whatever the server does, each message gets one outcome, and what is told as stored is stored", () => {
  for (let seed = 0; seed < 50; seed++) {
    const chance = chances(seed);
    const bench = new Bench({ retries: 4, windowBytes: 400 });
    const names = Array.from({ length: 200 }, (_, index) => "abc"[Math.floor(chance() * 3)] + index);
    const waiting = [];
    for (const name of names) {
      bench.add([name], 12 + Math.floor(chance() * 48));
      bench.nowMs += chance() * 10;
      waiting.push(...bench.popAll());
      while (waiting.length > 0 && chance() < 0.3) {
        const kind = chance();
        if (kind < 0.2) {
          bench.cut();
          waiting.length = 0;
        } else if (kind < 0.4) {
          bench.answer(FULL);
          waiting.shift();
        } else if (kind < 0.6) {
          const index = Math.floor(chance() * waiting.shift().length);
          bench.answer(refused("INVALID_ARGUMENT", "BAD_PROPERTIES", { field: `messages[${index}].properties` }));
        } else {
          bench.answer(waiting.shift());
        }
      }
    }
    bench.queue.closeBatch();
    while (!bench.queue.isIdle) {
      bench.nowMs += 2000;
      waiting.push(...bench.popAll());
      bench.answer(...waiting.splice(0));
    }
    assert.deepEqual([...bench.outcomes.keys()].sort(), names.sort());
    const told = Object.entries(bench.summary).filter(([, word]) => word === "stored");
    assert.deepEqual(told.map(([name]) => name).sort(), bench.stored.sort());
  }
});

test("without failures the order is that of the calls, whatever the window", () => {
  const bench = new Bench({ windowBytes: 100 });
  const names = Array.from({ length: 100 }, (_, index) => `m${index}`);
  bench.add(names);
  while (!bench.queue.isIdle) {
    bench.nowMs += 5;
    bench.answer(...bench.popAll());
  }
  assert.deepEqual(bench.stored, names);
});
