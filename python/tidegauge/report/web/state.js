// SPDX-License-Identifier: BSD-3-Clause

/** What the parts of the page share, and who is told when it changes. */
export class State {
  #values;
  #listeners = [];

  constructor(values) {
    this.#values = { ...values };
  }

  get(name) {
    return this.#values[name];
  }

  /** Tells each listener of these names once; what is equal to before is no change. */
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
