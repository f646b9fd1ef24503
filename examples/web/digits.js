/** The 1,797 handwritten digits of 8 x 8 pixels, in the file that `prepare.py` writes. */

import { preprocess } from "./preprocessing.js";
import { read } from "./safetensors.js";

export const SIDE = 8;

/** The digits of one split: bytes of images, and labels. */
export class Digits {
  /** `content` is the file (an ArrayBuffer), `split` "train" or "test", `steps` the preprocessing of the network. */
  constructor(content, split, steps) {
    const tensors = read(content);
    this.images = tensors[`${split}_images`].data;
    this.labels = tensors[`${split}_labels`].data;
    this.inputs = preprocess({ data: this.images, shape: [this.length, SIDE, SIDE, 1] }, steps);
  }

  get length() {
    return this.labels.length;
  }

  /** The bytes of one image. */
  image(row) {
    return this.images.slice(row * SIDE ** 2, (row + 1) * SIDE ** 2);
  }

  /** Data and targets of some rows, as `Training.train` takes them. */
  batch(rows) {
    const [, ...shape] = this.inputs.shape;
    const size = shape.reduce((product, length) => product * length);
    const data = new Float32Array(rows.length * size);
    rows.forEach((row, k) => data.set(this.inputs.data.subarray(row * size, (row + 1) * size), k * size));
    const labels = Int32Array.from(rows, (row) => this.labels[row]);
    return [
      { data, shape: [rows.length, ...shape] },
      { data: labels, shape: [rows.length] },
    ];
  }

  /** Batches of `size`, in order; the last one has what is left. */
  *inOrder(size) {
    for (let first = 0; first < this.length; first += size)
      yield this.batch(Array.from({ length: Math.min(size, this.length - first) }, (_, k) => first + k));
  }

  /** Batches of `size` without end: every epoch has another order, the same ones after every start. */
  *shuffled(size) {
    const random = numbers();
    for (;;) {
      const rows = Array.from({ length: this.length }, (_, k) => k);
      for (let k = rows.length - 1; k > 0; k--) {
        const other = random() % (k + 1);
        [rows[k], rows[other]] = [rows[other], rows[k]];
      }
      for (let first = 0; first + size <= rows.length; first += size) yield this.batch(rows.slice(first, first + size));
    }
  }
}

/** Random whole numbers below 2**32: xorshift (Marsaglia, 2003), so that other programs can repeat the order. */
function numbers() {
  let state = 2463534242;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>>= 0);
  };
}
