// SPDX-License-Identifier: BSD-3-Clause
// Light or dark theme: the system's, unless the reader chooses.
import { find } from "./dom.js";

export function followTheme(state) {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const choice = find("theme");
  const apply = () => {
    const theme = choice.value === "system" ? (system.matches ? "dark" : "light") : choice.value;
    document.documentElement.dataset.theme = theme;
    state.set({ theme });
  };
  choice.addEventListener("change", apply);
  system.addEventListener("change", apply);
  apply();
}
