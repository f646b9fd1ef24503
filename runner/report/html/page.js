"use strict";
// A click on the head of a column sorts the table by it; a second one the other way round.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    const key = row => {
      const cell = row.cells[column], value = cell.dataset.value ?? cell.textContent.trim();
      return value === "-" || value === "" ? null : isNaN(value) ? value : Number(value);
    };
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const compare = (a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === null || y === null) return (x === null) - (y === null);  // what is missing stays at the end
        const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
        return down ? -order : order;
      };
      body.append(...[...body.rows].sort(compare));
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); } });
  });
}
// The pointer over a chart shows what the lines have there.
const tip = document.body.appendChild(Object.assign(document.createElement("div"), {className: "tip"}));
const axis = text => {
  const [low, high, log] = text.split(" ").map(Number);
  return part => log ? low * (high / low) ** part : low + (high - low) * part;
};
const short = value => String(Number(value.toPrecision(4)));
for (const plot of document.querySelectorAll(".chart .plot")) {
  const svg = plot.querySelector("svg"), x = axis(svg.dataset.x), y = axis(svg.dataset.y);
  const lines = [...svg.querySelectorAll("path[data-name]:not(.band)")].map(path => ({
    name: path.dataset.name,
    points: path.getAttribute("d").slice(1).replace(/h0|Z/g, "").split(/[ML]/).map(pair => pair.split(" ").map(Number)),
  }));
  const cursor = plot.appendChild(Object.assign(document.createElement("div"), {className: "cursor"}));
  plot.addEventListener("pointermove", event => {
    const box = plot.getBoundingClientRect(), at = 1000 * (event.clientX - box.left) / box.width;
    const near = lines.map(line => [line.name, line.points.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a)]);
    const shown = near.filter(([, point]) => Math.abs(point[0] - at) < 40)
      .sort((a, b) => Math.abs(a[1][1] / 1000 * box.height + box.top - event.clientY) - Math.abs(b[1][1] / 1000 * box.height + box.top - event.clientY)).slice(0, 8);
    if (!shown.length) return;
    const place = shown[0][1][0] / 1000;
    cursor.style.cssText = `display:block;left:${100 * place}%`;
    tip.textContent = `at ${short(x(place))}\n` + shown.map(([name, point]) => `${name}: ${short(y(1 - point[1] / 1000))}`).join("\n");
    tip.style.display = "block";
    const wide = tip.offsetWidth, left = event.clientX + 14;
    tip.style.left = `${left + wide > innerWidth ? Math.max(0, event.clientX - wide - 14) : left}px`;
    tip.style.top = `${event.clientY + 14}px`;
  });
  plot.addEventListener("pointerleave", () => { tip.style.display = cursor.style.display = "none"; });
}
