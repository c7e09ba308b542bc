// Calling the service. Every call ends with data or with a Problem that says what to do.

import { $ } from "./dom.js";
import { Problem } from "./problems.js";
import { randomId } from "./session.js";

const BUSY_RETRIES = 3;
let token = sessionStorage.getItem("hire.token");

export const path = (...parts) => `v1/${parts.map(encodeURIComponent).join("/")}`;

export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const words = new URLSearchParams(
    given.flatMap(([name, value]) => (Array.isArray(value) ? value.map((one) => [name, one]) : [[name, value]])),
  );
  return given.length ? `?${words}` : "";
}

export const get = (address, options = {}) => call(address, options);
export const post = (address, body, key = randomId()) =>
  call(address, { method: "POST", body, headers: { "idempotency-key": key } });
export const patch = (address, body, options = {}) => call(address, { method: "PATCH", body, ...options });
export const remove = (address, options = {}) => call(address, { method: "DELETE", ...options });

// Posts that a person may try again: the same body has the same key, and is carried out once. With `again`, it can be
// carried out anew after it has succeeded.
export function poster({ again = false } = {}) {
  let last = null;
  return async (address, body) => {
    const text = JSON.stringify(body);
    if (last?.text !== text) last = { text, key: randomId() };
    const result = await post(address, body, last.key);
    if (again) last = null;
    return result;
  };
}

async function call(address, { text = false, ...options }) {
  const response = await request(address, options);
  if (response.status === 204) return null;
  return text ? response.text() : response.json();
}

// A response that is fine: a missing token is asked for, a busy service is asked again.
export async function request(address, { method = "GET", body, headers = {}, signal } = {}, tries = BUSY_RETRIES) {
  const sent = { ...headers };
  if (token) sent.authorization = `Bearer ${token}`;
  if (body !== undefined) sent["content-type"] ??= "application/json";
  const content = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  let response;
  try {
    response = await fetch(address, { method, headers: sent, signal, body: content });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The service does not respond", { remedy: "Check that hire serve is still running" });
  }
  if (response.ok) return response;
  if (response.status === 401) {
    await askForToken();
    return request(address, { method, body, headers, signal }, tries);
  }
  if (response.status === 503 && tries > 0) {
    await new Promise((done) => setTimeout(done, 1000 * Number(response.headers.get("retry-after") ?? 1)));
    return request(address, { method, body, headers, signal }, tries - 1);
  }
  throw await problemOf(response);
}

async function problemOf(response) {
  const told = await response.json().catch(() => ({}));
  const message = told.detail ?? told.title ?? `The service answered ${response.status}`;
  return Object.assign(new Problem(message, { remedy: told.remedy, status: response.status, code: told.code }), {
    told,
  });
}

let tokenAsked = null;
function askForToken() {
  // one dialog, however many requests need it
  tokenAsked ??= new Promise((resolve) => {
    $("token-wrong").textContent = token ? "Wrong token." : "";
    $("token-dialog").showModal();
    $("token-form").addEventListener(
      "submit",
      () => {
        token = $("token").value.trim();
        sessionStorage.setItem("hire.token", token);
        $("token").value = "";
        tokenAsked = null;
        resolve();
      },
      { once: true },
    );
  });
  return tokenAsked;
}
