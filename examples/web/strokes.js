/** From strokes of a pen to the 8 x 8 bytes of a digit, as those of the data set were made from scans. */

import { SIDE } from "./digits.js";

const GRID = 32; // a digit is drawn on 32 x 32 pixels, and each byte is the ink in 4 x 4 of them
const MARGIN = 3; // between the middle of a stroke and the edge
const WIDTH = 17; // of the middle of the strokes, as in the data set, where every digit is as high as the image
const STRETCH = 1.5; // narrow and wide digits are stretched, but not beyond this
const INK = 19.6 / SIDE ** 2; // mean share of ink in the data set, nearly the same for all digits
const LEVELS = 16;

/** `strokes` are lists of points [x, y] in any unit; without points the result is empty paper (zeros). */
export function digitOf(strokes) {
  const lines = fitted(strokes.filter((points) => points.length));
  if (!lines.length) return new Uint8Array(SIDE ** 2);
  const middle = (k) => [(k % GRID) + 0.5, Math.floor(k / GRID) + 0.5];
  const distances = Array.from({ length: GRID ** 2 }, (_, k) => distance(middle(k), lines));
  const radius = [...distances].sort((a, b) => a - b)[Math.round(INK * GRID ** 2)]; // the nearest pixels get ink
  const block = GRID / SIDE;
  const ink = new Float32Array(SIDE ** 2);
  distances.forEach((far, k) => {
    const place = Math.floor(k / GRID / block) * SIDE + Math.floor((k % GRID) / block);
    ink[place] += Math.min(Math.max(radius - far + 0.5, 0), 1) / block ** 2;
  });
  return Uint8Array.from(ink, (share) => Math.floor((Math.round(share * LEVELS) * 255 + LEVELS / 2) / LEVELS));
}

/** The strokes in pixels of the grid, as high as the grid and in its middle. */
function fitted(strokes) {
  const [x, y] = [0, 1].map((axis) => {
    const values = strokes.flatMap((points) => points.map((point) => point[axis]));
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return { middle: (low + high) / 2, size: Math.max(high - low, 1e-6) };
  });
  const down = (GRID - 2 * MARGIN) / Math.max(y.size, x.size / STRETCH ** 2);
  const across = Math.min(Math.max(WIDTH / x.size, down / STRETCH), down * STRETCH, (GRID - 2 * MARGIN) / x.size);
  return strokes.map((points) =>
    points.map((point) => [(point[0] - x.middle) * across + GRID / 2, (point[1] - y.middle) * down + GRID / 2]),
  );
}

/** From a point to the nearest of the lines. */
function distance(point, lines) {
  let nearest = Infinity;
  for (const line of lines)
    for (let k = 0; k < line.length; k++)
      nearest = Math.min(nearest, toSegment(point, line[Math.max(k - 1, 0)], line[k]));
  return nearest;
}

function toSegment([x, y], [x0, y0], [x1, y1]) {
  const [dx, dy] = [x1 - x0, y1 - y0];
  const along = dx || dy ? ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy) : 0;
  const t = Math.min(Math.max(along, 0), 1);
  return Math.hypot(x - x0 - t * dx, y - y0 - t * dy);
}
