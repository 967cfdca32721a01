// Making and updating elements. Whatever comes from the job goes in as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export const $ = (id) => document.getElementById(id);
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Writes only what has changed: a thousand cells are looked at every second. */
export function text(element, value) {
  const string = value === null || value === undefined ? "" : String(value);
  if (element.textContent !== string) element.textContent = string;
}

export function attribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

export function style(element, name, value) {
  if (element.style.getPropertyValue(name) !== value) element.style.setProperty(name, value);
}

const kept = new WeakMap();

/** Makes the children of `parent` match `items`: elements are kept by key, updated, and put in order. */
export function sync(parent, items, key, make, update) {
  const old = kept.get(parent) || new Map();
  const now = new Map();
  let at = parent.firstChild;
  for (const item of items) {
    const id = key(item);
    const element = old.get(id) || make(item);
    old.delete(id);
    now.set(id, element);
    update(element, item);
    if (element === at) at = at.nextSibling;
    else parent.insertBefore(element, at);
  }
  for (const element of old.values()) element.remove();
  kept.set(parent, now);
}

/** A row of buttons of which one is pressed. Returns a function that presses one. */
export function segments(parent, choices, chosen, change) {
  const buttons = choices.map(([value, title]) =>
    h("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => press(value) }, title));
  function press(value) {
    choices.forEach(([one], index) => attribute(buttons[index], "aria-pressed", String(one === value)));
    change(value);
  }
  parent.replaceChildren(...buttons);
  return press;
}

/** What the browser keeps for us; a browser that keeps nothing is no reason to show nothing. */
export function recall(store, name) {
  try {
    return window[store].getItem(name) || "";
  } catch {
    return "";
  }
}

export function keep(store, name, value) {
  try {
    window[store].setItem(name, value);
  } catch {
    // then it is forgotten with the page
  }
}

/** JSON of the AIMaster. Throws an Error with its message. */
export async function get(path, options = {}) {
  const answer = await fetch(path, { ...options, signal: AbortSignal.timeout(15000) });
  let body;
  try {
    body = await answer.json();
  } catch {
    throw new Error(`${answer.status} ${answer.statusText}`);
  }
  if (!answer.ok) throw new Error(body.error || `${answer.status} ${answer.statusText}`);
  return body;
}
