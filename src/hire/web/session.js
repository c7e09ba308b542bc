// Who is reviewing, and in which tab.

const NOBODY = "anonymous";

export function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const client = randomId(); // of this tab, so that it never conflicts with itself

export const who = () => localStorage.getItem("hire.who") || NOBODY;

export function setWho(name) {
  localStorage.setItem("hire.who", name.trim());
}

// What a change says about its origin.
export const origin = () => ({ by: who(), client });
