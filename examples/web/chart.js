/** The loss of every step as a line, and its mean over the last steps as a heavier one. */

const NAMESPACE = "http://www.w3.org/2000/svg";
const SPACE = { left: 38, right: 10, top: 12, bottom: 26 }; // for the numbers at the axes
const SMOOTH = 0.9; // share of the past in the mean
const SEGMENTS = 400; // more would not be visible

export class Chart {
  constructor(svg) {
    this.svg = svg;
    this.losses = [];
    new ResizeObserver(() => this.draw()).observe(svg);
  }

  /** Show these losses, before the next frame. */
  show(losses) {
    this.losses = losses;
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.svg;
    if (!width) return;
    const steps = Math.max(this.losses.length, 100);
    const highest = Math.max(1, 1.1 * this.losses.reduce((most, loss) => (loss > most && loss < Infinity ? loss : most), 2.3));
    const right = width - SPACE.right;
    const floor = height - SPACE.bottom;
    const x = (step) => SPACE.left + (step / steps) * (right - SPACE.left);
    const y = (loss) => floor - (loss / highest) * (floor - SPACE.top);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(
      ...ticks(highest, height / 50).flatMap((loss) => [
        line("grid", [[SPACE.left, y(loss)], [right, y(loss)]]),
        text(SPACE.left - 8, y(loss) + 4, "end", loss),
      ]),
      ...ticks(steps, width / 90).map((step) => text(x(step), height - 6, "middle", step.toLocaleString("en"))),
      line("every", thinned(this.losses.map((loss, k) => [x(k + 1), y(loss)]))),
      line("mean", thinned(means(this.losses).map((loss, k) => [x(k + 1), y(loss)]))),
    );
  }
}

/** Round numbers from 0 to `highest`, about `count` of them. */
function ticks(highest, count) {
  const rough = highest / Math.max(count, 2);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  return Array.from({ length: Math.floor(highest / step) + 1 }, (_, k) => Number((k * step).toPrecision(6)));
}

/** Exponential means that are exact from the first step on. */
function means(losses) {
  let [sum, weight] = [0, 0];
  return losses.map((loss) => {
    [sum, weight] = [SMOOTH * sum + loss, SMOOTH * weight + 1];
    return sum / weight;
  });
}

/** Of each run of neighbours the lowest and the highest point, so that no peak is lost. */
function thinned(points) {
  const size = Math.ceil(points.length / SEGMENTS);
  if (size < 2) return points;
  return Array.from({ length: Math.ceil(points.length / size) }, (_, k) => {
    const part = points.slice(k * size, (k + 1) * size).sort((one, other) => one[1] - other[1]);
    return [part[0], part.at(-1)].sort((one, other) => one[0] - other[0]);
  }).flat();
}

function line(kind, points) {
  const finite = points.filter((point) => point.every(Number.isFinite));
  const rounded = finite.map((point) => point.map((value) => value.toFixed(1)));
  return element("polyline", { class: kind, points: rounded.join(" ") });
}

function text(x, y, anchor, content) {
  const node = element("text", { x, y, "text-anchor": anchor });
  node.textContent = content;
  return node;
}

function element(name, attributes) {
  const node = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}
