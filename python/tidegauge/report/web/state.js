// SPDX-License-Identifier: BSD-3-Clause

/** Shared values of the page; notifies listeners when they change. */
export class State {
  #values;
  #listeners = [];

  constructor(values) {
    this.#values = { ...values };
  }

  get(name) {
    return this.#values[name];
  }

  /** Notifies each listener of the changed names once. Setting an equal value is not a change. */
  set(changes) {
    const changed = Object.keys(changes).filter((name) => this.#values[name] !== changes[name]);
    Object.assign(this.#values, changes);
    for (const { names, listen } of this.#listeners) {
      if (names.some((name) => changed.includes(name))) listen();
    }
  }

  /** Calls `listen` now, and whenever one of the names changes. */
  watch(names, listen) {
    this.#listeners.push({ names, listen });
    listen();
  }
}
