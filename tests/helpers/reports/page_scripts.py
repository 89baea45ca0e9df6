"""JavaScript that measures a page of the HTML report in a browser."""

from __future__ import annotations

PLOTS_SHOWN = """
() => Object.fromEntries([...document.querySelectorAll('figure[id^=plot-]')].map(figure => {
  const svg = figure.querySelector(':scope > svg');
  const box = svg.getBoundingClientRect(), card = figure.getBoundingClientRect();
  const shown = [...svg.querySelectorAll('text')]
    .filter(t => getComputedStyle(t).visibility === 'visible');
  const boxes = shown.map(t => [t.textContent, t.getBoundingClientRect()]);
  const outside = boxes.filter(([, b]) =>
    b.left < card.left || b.right > card.right || b.top < card.top || b.bottom > card.bottom
  ).map(([t]) => t);
  const colliding = [];
  boxes.forEach(([s, a], i) => boxes.slice(i + 1).forEach(([t, b]) => {
    // line boxes are higher than letters: boxes of two lines may overlap by 4 pixels
    if (a.left < b.right && b.left < a.right && a.top + 4 < b.bottom && b.top + 4 < a.bottom)
      colliding.push([s, t]);
  }));
  const drawn = [...svg.querySelectorAll('.area, .bar, .dot, .stream')].filter(m => {
    const b = m.getBoundingClientRect(); return b.width > 0 && b.height > 0;
  });
  const sizes = shown.map(t => parseFloat(getComputedStyle(t).fontSize));
  return [figure.id, {
    marks: drawn.length, width: box.width, height: box.height,
    label: svg.getAttribute('aria-label') || '', outside, colliding,
    smallest: Math.min(...sizes, 99),
  }];
}))
"""
FAINT = """
() => {
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const faint = new Set();
  for (const e of document.querySelectorAll('h1, h2, h3, p, li, dt, dd, th, td, svg text')) {
    const style = getComputedStyle(e), svg = e instanceof SVGElement;
    const front = light(parse(svg ? style.fill : style.color));
    const back = light(behind(svg ? e.closest('figure') : e));
    const contrast = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (contrast < 4.5) faint.add(`${e.tagName}.${e.getAttribute('class')} ${contrast.toFixed(2)}`);
  }
  return [...faint];
}
"""
