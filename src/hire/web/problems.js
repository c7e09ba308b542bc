// Errors are shown right after what caused them, and are gone with the next attempt.

import { button, make } from "./dom.js";

export class Problem extends Error {
  constructor(message, { remedy = null, status = 0, code = null, retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { remedy, status, code, retryAfter });
  }
}

export const isAbort = (error) => error?.name === "AbortError";

export function problemText(error) {
  const remedy = error.remedy ? ` ${error.remedy}` : "";
  return `${sentence(error.message)}${remedy && ` ${sentence(remedy.trim())}`}`;
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?…]$/.test(text) ? "" : "."}`;

function clearProblem(element) {
  if (element.nextElementSibling?.matches(".problem")) element.nextElementSibling.remove();
}

export function showProblem(element, error) {
  clearProblem(element);
  const shown = make("p", { class: "problem", role: "alert" }, make("span", {}, problemText(error)));
  shown.append(button("×", () => shown.remove(), { class: "plain", "aria-label": "Dismiss the error" }));
  element.after(shown);
  shown.scrollIntoView({ block: "nearest" });
}

// A listener that does its work and shows what goes wrong after an element; it reports whether the work was done.
export const beside =
  (element, work) =>
  async (...given) => {
    clearProblem(element);
    try {
      await work(...given);
      return true;
    } catch (error) {
      if (isAbort(error)) return false;
      if (!(error instanceof Problem)) console.error(error);
      showProblem(element, error);
      return false;
    }
  };
