// What others do, as it happens: the service's event stream, shared by all tabs of a browser.
// A browser opens six connections to a service at most, so only one tab reads the stream and passes events on.

import { request } from "./api.js";

const FIRST_PAUSE = 250,
  LONGEST_PAUSE = 4000; // milliseconds before connecting again
const channel = new BroadcastChannel("hire.events");
const listeners = new Set();
let lastId = null;
let offline = false;

// Calls a function with each event's name and data, until the returned function is called.
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function deliver({ id, name, data }) {
  if (id) lastId = id;
  for (const listener of [...listeners]) listener(name, data);
}

export function connect() {
  channel.onmessage = ({ data }) => deliver(data);
  if (navigator.locks) navigator.locks.request("hire.events", stayConnected);
  else stayConnected();
}

async function stayConnected() {
  let pause = FIRST_PAUSE;
  for (;;) {
    try {
      await read(() => {
        pause = FIRST_PAUSE;
      });
    } catch {
      pause = Math.min(2 * pause, LONGEST_PAUSE);
    }
    if (!offline) pass({ name: "offline", data: {} });
    offline = true;
    await new Promise((done) => setTimeout(done, pause));
  }
}

function pass(event) {
  channel.postMessage(event);
  deliver(event);
}

async function read(onevent) {
  const response = await request("v1/events", { headers: lastId ? { "last-event-id": lastId } : {} });
  if (offline) pass({ name: "online", data: {} }); // again: something may have been missed
  offline = false;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const event of blocks.map(parse).filter(Boolean)) {
      onevent();
      pass(event);
    }
  }
}

function parse(block) {
  const event = { id: null, name: "message", data: "" };
  for (const line of block.split("\n")) {
    const [, field, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (field === "data") event.data += value;
    else if (field === "event") event.name = value;
    else if (field === "id") event.id = value;
  }
  return event.data ? { ...event, data: JSON.parse(event.data) } : null;
}
