/** A canvas to draw on with mouse, finger, pen, or keyboard. */

const LINE = 0.07; // width of a line, as a share of the side
const KEY_STEP = 1 / 16; // of a press of an arrow key
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Drawing {
  /** `changed` is called with the strokes, lists of points [x, y] from 0 to 1, whenever they change. */
  constructor(canvas, changed) {
    Object.assign(this, { canvas, changed, strokes: [], pen: null });
    canvas.addEventListener("pointerdown", (event) => this.begin(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (this.pointer = null));
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.set({ pen: null }));
    new ResizeObserver(() => this.paint()).observe(canvas);
  }

  clear() {
    this.set({ strokes: [] });
    if (this.pen) this.pen.isDown = false;
    this.changed(this.strokes);
  }

  set(values) {
    Object.assign(this, values);
    this.paint();
  }

  begin(event) {
    if (!event.isPrimary || event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.pointer = event.pointerId;
    this.pen = null;
    this.strokes.push([]);
    this.move(event);
  }

  move(event) {
    if (event.pointerId !== this.pointer) return;
    const box = this.canvas.getBoundingClientRect();
    const merged = event.getCoalescedEvents?.() ?? [];
    for (const { clientX, clientY } of merged.length ? merged : [event])
      this.add((clientX - box.left) / box.width, (clientY - box.top) / box.height);
  }

  key(event) {
    this.pen ??= { x: 0.5, y: 0.25, isDown: false };
    const { pen } = this;
    if (event.key in ARROWS) {
      const [dx, dy] = ARROWS[event.key];
      const inside = (value) => Math.min(Math.max(value, KEY_STEP), 1 - KEY_STEP);
      Object.assign(pen, { x: inside(pen.x + dx * KEY_STEP), y: inside(pen.y + dy * KEY_STEP) });
      if (pen.isDown) this.add(pen.x, pen.y);
    } else if (event.key === " ") {
      pen.isDown = !pen.isDown;
      if (pen.isDown) {
        this.strokes.push([]);
        this.add(pen.x, pen.y);
      }
    } else if (event.key === "Delete" || event.key === "Backspace") this.clear();
    else return;
    event.preventDefault(); // the page stays where it is
    this.paint();
  }

  add(x, y) {
    this.strokes.at(-1).push([x, y]);
    this.paint();
    this.changed(this.strokes);
  }

  paint() {
    const side = Math.round(this.canvas.clientWidth * devicePixelRatio);
    if (!side) return;
    if (this.canvas.width !== side) this.canvas.width = this.canvas.height = side;
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, side, side);
    Object.assign(context, { lineWidth: LINE * side, lineCap: "round", lineJoin: "round" });
    for (const points of this.strokes) {
      context.beginPath();
      points.forEach(([x, y]) => context.lineTo(x * side, y * side));
      if (points.length === 1) context.lineTo(points[0][0] * side, points[0][1] * side); // a dot
      context.stroke();
    }
    if (this.pen) this.paintPen(context, side);
  }

  /** A ring where the pen of the keyboard is, filled while it is down. */
  paintPen(context, side) {
    context.beginPath();
    context.arc(this.pen.x * side, this.pen.y * side, (LINE * side) / 1.5, 0, 2 * Math.PI);
    context.lineWidth = side / 140;
    context.stroke();
    if (this.pen.isDown) context.fill();
  }
}
