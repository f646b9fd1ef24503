/** From the bytes of images to the inputs of a network: the steps that `signature.json` lists under `preprocessing`. */

const STEPS = { Resize: resize, Rescale: affine, Normalize: affine, Affine: affine, HWC2CHW: channelsFirst };

/**
 * Apply the steps to a stack of images {data, shape: [count, height, width, channels]}; the result has the same form,
 * with the shape that the last step makes. Throws an Error for a step that is not in the table above.
 */
export function preprocess(images, steps) {
  return steps.reduce((stack, step) => {
    const apply = STEPS[step.operation];
    if (!apply) throw new Error(`preprocessing has ${step.operation}; this page knows ${Object.keys(STEPS).join(", ")}`);
    return apply(stack, step);
  }, images);
}

/** Bilinear, with pixel centres at halves; bytes are the exact values rounded, halves up, as in the training. */
function resize({ data, shape: [count, height, width, channels] }, { size, interpolation }) {
  const [newHeight, newWidth] = size;
  if (newHeight === height && newWidth === width) return { data, shape: [count, height, width, channels] };
  if (size.length !== 2 || interpolation !== "LINEAR" || !(data instanceof Uint8Array))
    throw new Error(`Resize to ${size} by ${interpolation}: this page knows bytes, two lengths and LINEAR`);
  const [rows, columns] = [axis(height, newHeight), axis(width, newWidth)];
  const unit = 4 * newHeight * newWidth;
  const result = new Uint8Array(count * newHeight * newWidth * channels);
  let k = 0;
  for (let image = 0; image < count; image++)
    for (const row of rows)
      for (const column of columns)
        for (let channel = 0; channel < channels; channel++) {
          const at = (y, x) => data[((image * height + y) * width + x) * channels + channel];
          const across = (y) =>
            at(y, column.low) * (2 * newWidth - column.weight) + at(y, column.high) * column.weight;
          const total = across(row.low) * (2 * newHeight - row.weight) + across(row.high) * row.weight;
          result[k++] = Math.floor((total + unit / 2) / unit);
        }
  return { data: result, shape: [count, newHeight, newWidth, channels] };
}

/** For each new position, its two neighbours on the old axis and the weight of the second, in units of 1 / (2 new). */
function axis(old, length) {
  return Array.from({ length }, (_, k) => {
    const position = (2 * k + 1) * old - length;
    const low = Math.floor(position / (2 * length));
    const inside = (index) => Math.min(Math.max(index, 0), old - 1);
    return { low: inside(low), high: inside(low + 1), weight: position - 2 * length * low };
  });
}

/** `x * scale + shift`, with one number each, or one per channel. */
function affine({ data, shape }, { scale, shift }) {
  const result = new Float32Array(data.length);
  for (let k = 0; k < data.length; k++) result[k] = data[k] * scale[k % scale.length] + shift[k % shift.length];
  return { data: result, shape };
}

function channelsFirst({ data, shape: [count, height, width, channels] }) {
  const pixels = height * width;
  const result = new data.constructor(data.length);
  for (let image = 0; image < count; image++)
    for (let pixel = 0; pixel < pixels; pixel++)
      for (let channel = 0; channel < channels; channel++)
        result[(image * channels + channel) * pixels + pixel] = data[(image * pixels + pixel) * channels + channel];
  return { data: result, shape: [count, channels, height, width] };
}
