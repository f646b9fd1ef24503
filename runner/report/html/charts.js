// Charts: exact values below the pointer, zoom by dragging along the steps, both also with keys. The pictures in the
// page are whole without this script; it draws a line again only when its axes change.
{
  const tip = document.body.appendChild(Object.assign(document.createElement("div"), {className: "tip"}));
  tip.setAttribute("role", "status");
  const short = value => String(Number(value.toPrecision(5)));
  const made = (box, name, className) => box.appendChild(Object.assign(document.createElement(name), {className}));

  const scale = text => {
    const [low, high, log] = text.split(" ").map(Number);
    return {low, high, log, part: value => log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low)};
  };
  const around = (values, log) => {  // as axis_around in axis.py
    const low = Math.min(...values), high = Math.max(...values);
    if (log) { const more = high > low ? (high / low) ** 0.04 : 1.5; return scale(`${low / more} ${high * more} 1`); }
    const margin = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    return scale(`${low - margin} ${high + margin} 0`);
  };
  const ticks = ({low, high, log}) => {
    const decades = [];
    if (log) for (let k = Math.ceil(Math.log10(low)); 10 ** k <= high; k++) decades.push(10 ** k);
    if (decades.length > 2) return decades.filter((_, k) => k % Math.ceil(decades.length / 6) === 0);
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(factor => factor * power).find(one => one >= 0.8 * rough);
    const found = [];
    for (let k = Math.ceil(low / step); k * step <= high; k++) found.push(k * step);
    return found;
  };
  const label = value => {
    const [power, unit] = Math.abs(value) >= 1e6 ? [1e6, "M"] : Math.abs(value) >= 1e4 ? [1e3, "k"] : [1, ""];
    return Number((value / power).toPrecision(4)) + unit;
  };

  // One of the forms of a figure: its axes, its lines and their places in the picture.
  const drawing = plot => {
    const svg = plot.querySelector("svg");
    return {plot, svg, x: scale(svg.dataset.x), y: scale(svg.dataset.y), cursor: made(plot, "div", "cursor")};
  };
  const draw = (form, lines, x, y) => {
    form.x = x; form.y = y;
    const at = (a, b) => `${(1000 * x.part(a)).toFixed(1)} ${(1000 * (1 - y.part(b))).toFixed(1)}`;
    for (const path of form.svg.querySelectorAll("[data-line]")) {
      const line = lines[path.dataset.line], places = line.x.map((a, k) => at(a, line.y[k]));
      const isBand = path.classList.contains("band");
      path.setAttribute("d", path.classList.contains("dots") ? places.map(one => `M${one}h0`).join("") : `M${places.join("L")}${isBand ? "Z" : ""}`);
    }
    const box = form.plot.querySelector("div[aria-hidden]");
    box.replaceChildren();
    for (const value of ticks(y)) Object.assign(made(box, "span", "y"), {textContent: label(value)}).style.top = `${100 * (1 - y.part(value))}%`;
    for (const value of ticks(x).filter(Number.isInteger)) Object.assign(made(box, "span", "x"), {textContent: label(value)}).style.left = `${100 * x.part(value)}%`;
    form.svg.querySelector(".grid").setAttribute("d", ticks(y).map(value => `M0 ${1000 * (1 - y.part(value))}H1000`).join(""));
    form.svg.classList.add("cut");
  };

  const show = (text, left, top) => {
    tip.textContent = text;
    tip.style.display = "block";
    const place = left + 14 + tip.offsetWidth > innerWidth ? Math.max(0, left - tip.offsetWidth - 14) : left + 14;
    tip.style.left = `${place}px`;
    tip.style.top = `${Math.min(top + 14, innerHeight - tip.offsetHeight)}px`;
  };
  const hide = () => { tip.style.display = "none"; document.querySelectorAll(".cursor").forEach(one => one.style.display = "none"); };

  // What a figure over steps shows at a place (0 to 1): of each line the nearest point, those next to the pointer first.
  const readSteps = (figure, lines, form, part, event) => {
    const box = form.plot.getBoundingClientRect();
    const near = [];
    for (const [k, line] of lines.entries()) {
      if (!line.name || form.svg.querySelector(`.band[data-line="${k}"]`)) continue;
      let best = 0;
      line.x.forEach((x, j) => { if (Math.abs(form.x.part(x) - part) < Math.abs(form.x.part(line.x[best]) - part)) best = j; });
      near.push({name: line.name, x: line.x[best], y: line.y[best], off: Math.abs(form.x.part(line.x[best]) - part)});
    }
    const height = one => Math.abs((1 - form.y.part(one.y)) * box.height + box.top - event.clientY);
    const shown = near.filter(one => one.off < 0.04).sort((a, b) => height(a) - height(b)).slice(0, 8);
    if (!shown.length) return;
    const nearest = shown.reduce((a, b) => b.off < a.off ? b : a);
    form.cursor.style.cssText = `display:block;left:${100 * form.x.part(nearest.x)}%`;
    const texts = shown.map(one => `${one.name}: ${short(one.y)}${one.x === nearest.x ? "" : ` (at ${short(one.x)})`}`);
    show([`${figure.dataset.x} ${nearest.x}`, ...texts].join("\n"), event.clientX, event.clientY);
    figure.reading = nearest.x;
  };
  const readPoint = (lines, form, event) => {
    const box = form.plot.getBoundingClientRect();
    let best = null;
    for (const line of lines) line.labels?.forEach((text, k) => {
      const off = Math.hypot(form.x.part(line.x[k]) * box.width + box.left - event.clientX, (1 - form.y.part(line.y[k])) * box.height + box.top - event.clientY);
      if (!best || off < best.off) best = {text, off};
    });
    if (best && best.off < 40) show(best.text, event.clientX, event.clientY); else hide();
  };

  for (const figure of document.querySelectorAll("figure[data-lines]")) {
    const lines = JSON.parse(figure.dataset.lines).map(([name, x, y, labels]) =>
      ({name, y, labels, x: x.length === y.length ? x : y.map((_, k) => x[0] + k * x[1])}));
    const forms = [...figure.querySelectorAll(".plot")].map(drawing);
    const isZoomed = "x" in figure.dataset, whole = forms.map(({x, y}) => [x, y]);
    const all = made(figure.querySelector("figcaption"), "button", "all");
    all.textContent = "all steps"; all.type = "button"; all.hidden = true;
    const reset = () => { forms.forEach((form, k) => draw(form, lines, ...whole[k])); all.hidden = true; hide(); };
    const zoom = (low, high) => {
      if (!(high - low >= 1)) return;
      const inside = lines.flatMap(line => line.y.filter((_, k) => line.x[k] >= low && line.x[k] <= high));
      if (!inside.length) return;
      for (const form of forms) draw(form, lines, scale(`${low} ${high} 0`), around(inside, form.y.log));
      all.hidden = false; hide();
    };
    all.addEventListener("click", reset);
    for (const form of forms) {
      const {plot} = form, picked = made(plot, "div", "picked");
      const part = event => { const box = plot.getBoundingClientRect(); return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)); };
      const read = event => isZoomed ? readSteps(figure, lines, form, part(event), event) : readPoint(lines, form, event);
      const step = part => form.x.low + part * (form.x.high - form.x.low);
      let start = null;
      plot.addEventListener("pointerdown", event => { start = isZoomed ? part(event) : null; if (start !== null && event.isTrusted) plot.setPointerCapture(event.pointerId); read(event); });
      plot.addEventListener("pointermove", event => {
        read(event);
        if (start !== null) picked.style.cssText = `display:block;left:${100 * Math.min(start, part(event))}%;width:${100 * Math.abs(start - part(event))}%`;
      });
      const drop = () => { start = null; picked.style.display = "none"; };
      plot.addEventListener("pointerup", event => {
        if (start !== null && Math.abs(start - part(event)) > 0.02) zoom(...[start, part(event)].map(step).sort((a, b) => a - b));
        drop();
      });
      plot.addEventListener("pointercancel", drop);
      plot.addEventListener("pointerleave", hide);
      plot.addEventListener("blur", hide);
      if (!isZoomed) continue;
      plot.addEventListener("dblclick", reset);
      plot.tabIndex = 0;
      plot.setAttribute("role", "group");
      plot.parentElement.querySelector(".axis").append(" \u00b7 drag to zoom");
      plot.setAttribute("aria-description", "Arrow keys read values, plus and minus zoom, Escape shows all steps");
      plot.addEventListener("keydown", event => {
        const box = plot.getBoundingClientRect(), {low, high} = form.x, xs = lines[0].x, inside = xs.filter(x => x >= low && x <= high);
        const k = inside.indexOf(figure.reading), by = {ArrowLeft: -1, ArrowRight: 1}[event.key], factor = {"+": 0.5, "-": 2}[event.key];
        if (by) {
          const x = inside[k < 0 ? (by > 0 ? 0 : inside.length - 1) : Math.min(inside.length - 1, Math.max(0, k + by))];
          if (x !== undefined) readSteps(figure, lines, form, form.x.part(x), {clientX: box.left + form.x.part(x) * box.width, clientY: box.top});
        } else if (factor) {
          const middle = inside[k] ?? (low + high) / 2, [[{low: first, high: last}]] = whole;
          const from = Math.max(first, middle - factor * (middle - low)), to = Math.min(last, middle + factor * (high - middle));
          if (from === first && to === last) reset(); else zoom(from, to);
        } else if (event.key === "Escape") reset(); else return;
        event.preventDefault();
      });
    }
  }
  for (const line of document.querySelectorAll("path[data-tip]")) {
    for (const kind of ["pointermove", "pointerdown"]) line.addEventListener(kind, event => show(line.dataset.tip, event.clientX, event.clientY));
    line.addEventListener("pointerleave", hide);
  }
}
