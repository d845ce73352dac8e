// SPDX-License-Identifier: Apache-2.0
// The console works without this file; it adds: times in the reader's zone, pages that stay up to date, live tails,
// copying, and the key "/".
"use strict";

const REFRESH_MS = 5000;
const POLL_MS = 3000;
const SILENCE_MS = 9000; // a tail without an event for so long is behind a proxy that keeps events back
const ROWS_MAX = 200;

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
// The forms of ISO 8601 in every locale, so that the box understands each time that is copied from a page.
const clock = new Intl.DateTimeFormat("sv-SE", { timeStyle: "medium" });
const offset = new Intl.DateTimeFormat("en", { timeZoneName: "longOffset" });
const day = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short" });

function showTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(element.dateTime);
    if (Number.isNaN(moment.valueOf())) continue;
    const isToday = day.format(moment) === day.format(new Date());
    const isWhole = "whole" in element.dataset;
    element.textContent = isToday && !isWhole ? clock.format(moment) : `${day.format(moment)} ${clock.format(moment)}`;
    if (isWhole) element.textContent += `${element.dateTime.slice(19, -1)} ${offset.format(moment).split(" ").at(-1)}`;
    element.title = element.dateTime;
  }
  for (const field of root.querySelectorAll("input[name=zone]")) field.value = zone;
  for (const line of root.querySelectorAll(".zone")) line.textContent = `Times are in ${zone}.`;
}

// Pages that stay up to date: htmx asks for the page again and changes what has changed.

let lastAnswer = new Date();

function isLost(isSo) {
  const line = document.getElementById("lost");
  line.hidden = !isSo;
  if (isSo) line.querySelector("span").textContent = clock.format(lastAnswer);
  else lastAnswer = new Date();
}

function isTyping() {
  return document.activeElement instanceof HTMLInputElement && document.activeElement.closest("[data-live]") !== null;
}

async function refresh(element) {
  if (document.hidden || isTyping()) return;
  const select = `#${element.id}`;
  await htmx.ajax("GET", location.pathname + location.search, { target: select, select, swap: "outerMorph" });
}

function keepFresh() {
  if (document.querySelector("[data-live]") === null) return;
  setInterval(() => {
    const element = document.querySelector("[data-live]");
    if (element !== null) refresh(element);
  }, REFRESH_MS);
  document.addEventListener("htmx:error", () => isLost(true));
  document.addEventListener("htmx:after:request", (event) => {
    if (event.detail.ctx?.response) isLost(false);
  });
  document.addEventListener("htmx:before:swap", (event) => {
    const { target, text } = event.detail.ctx ?? {};
    if (target?.id && text && !text.includes(`id="${target.id}"`)) event.preventDefault(); // a page without this part
  });
  document.addEventListener("htmx:after:swap", () => showTimes(document));
}

// Live tails: server-sent events; where they do not arrive, polling.

class Tail {
  constructor(section) {
    this.address = section.dataset.tail;
    this.cursor = section.dataset.cursor;
    this.form = section.querySelector("form");
    this.button = section.querySelector("[data-start]");
    this.line = section.querySelector("[data-tail-state]");
    this.rows = section.querySelector("tbody");
    this.shownCount = 0;
    this.skippedCount = 0;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.isRunning) this.stop();
      else this.start();
    });
  }

  get isRunning() {
    return this.source !== undefined || this.timer !== undefined;
  }

  url(kind) {
    const form = new FormData(this.form);
    const query = new URLSearchParams({ cursor: this.cursor, tags: form.get("tags"), where: form.get("where") });
    return `${this.address}/${kind}?${query}`;
  }

  start() {
    if (!this.cursor) return this.tell("No queue can be followed.");
    this.button.textContent = "Stop";
    const form = new FormData(this.form);
    if (form.get("tags") || form.get("where")) this.rows.replaceChildren(); // rows of before did not pass the filter
    this.tell("Following…");
    this.source = new EventSource(this.url("tail"));
    this.source.addEventListener("hello", () => this.listen());
    this.source.addEventListener("step", (event) => {
      this.listen();
      this.take(JSON.parse(event.data));
    });
    this.source.onerror = () => {
      if (this.source?.readyState === EventSource.CLOSED) this.poll();
      else this.tell("The console does not answer. The tail goes on as soon as it does.");
    };
    this.listen();
  }

  listen() {
    clearTimeout(this.watch);
    this.watch = setTimeout(() => this.poll(), SILENCE_MS);
  }

  stop() {
    clearTimeout(this.watch);
    clearInterval(this.timer);
    this.source?.close();
    this.source = this.timer = undefined;
    this.button.textContent = "Follow";
    this.tell(`Stopped after ${this.shownCount} ${this.shownCount === 1 ? "message" : "messages"}.`);
  }

  poll() {
    clearTimeout(this.watch);
    this.source?.close();
    this.source = undefined;
    this.timer ??= setInterval(() => this.askOnce(), POLL_MS);
    this.askOnce();
  }

  async askOnce() {
    try {
      const answer = await fetch(this.url("newer"), { headers: { Accept: "application/json" } });
      const step = await answer.json();
      if (step.error) this.tell(step.error);
      else this.take(step);
    } catch {
      this.tell("The console does not answer. The tail goes on as soon as it does.");
    }
  }

  take(step) {
    this.cursor = step.cursor;
    this.shownCount += step.count;
    this.skippedCount += step.skipped_count;
    if (step.count) {
      const part = document.createElement("template");
      part.innerHTML = step.rows; // made and escaped by the console, as the page itself
      for (const row of part.content.querySelectorAll("tr")) row.classList.add("new");
      showTimes(part.content);
      this.rows.prepend(part.content);
      while (this.rows.rows.length > ROWS_MAX) this.rows.deleteRow(-1);
    }
    const skipped = this.skippedCount ? `, ${this.skippedCount} skipped: they arrive faster than a page shows` : "";
    this.tell(step.gaps.length ? step.gaps.join("; ") : `Following: ${this.shownCount} new${skipped}`);
  }

  tell(text) {
    this.line.textContent = text;
  }
}

// Copying, and keys.

async function copy(button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => (button.textContent = before), 1500);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button !== null) copy(button);
});

document.addEventListener("submit", (event) => {
  const button = event.target.matches("[data-once]") ? event.target.querySelector("button") : null;
  if (button !== null) button.disabled = true; // a second press would be refused, and hide the answer of the first
});

document.addEventListener("keydown", (event) => {
  const isInField = event.target.closest?.("input, select, textarea, [contenteditable]") !== null;
  const box = document.querySelector("input[name=q]");
  if (event.key !== "/" || isInField || box === null || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  box.focus();
  box.select(); // what is typed next takes the place of the last search
});

showTimes(document);
keepFresh();
for (const section of document.querySelectorAll("[data-tail]")) new Tail(section);
