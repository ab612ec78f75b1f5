// SPDX-License-Identifier: BSD-3-Clause
// Finds text whose contrast to its background is below 4.5 to 1 by WCAG's formula.
() => {
  const parse = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const toLinear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const level = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((c) => toLinear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const hasText = (element) =>
    element.checkVisibility() &&
    !["SCRIPT", "STYLE"].includes(element.tagName) &&
    [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const elements = [...document.querySelectorAll("body *")].filter(hasText);
  const faint = elements.filter((element) => {
    const text = level(parse(getComputedStyle(element).color));
    const ground = level(behind(element));
    return (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05) < 4.5;
  });
  return { count: elements.length, faint: faint.map((element) => element.outerHTML.slice(0, 200)) };
};
