/**
 * Train in Node what `runner export` wrote: node train.js DIRECTORY DIGITS, with the options below.
 *
 * DIGITS is the file of examples/web/digits.py. Prints the loss of each step, and writes the weights for
 * `runner eval RUN checkpoint.load=weights.safetensors`.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import * as ort from "onnxruntime-node";
import { Digits } from "../web/digits.js";
import { read, write } from "../web/safetensors.js";
import { Training } from "../web/training.js";

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    start: { type: "string", default: "initial" }, // the values before the run, or "state": those after it
    steps: { type: "string", default: "200" },
    batch: { type: "string", default: "32" },
    weights: { type: "string", default: "weights.safetensors" },
  },
});
const [directory, file] = positionals;
if (!file) throw new Error("usage: node train.js DIRECTORY DIGITS [--start initial|state] [--steps 200] [--batch 32]");

const content = async (...path) => new Uint8Array(await readFile(join(...path))).buffer;
const signature = JSON.parse(await readFile(join(directory, "signature.json"), "utf8"));
const digits = new Digits(await content(file), "train", signature.preprocessing[0].steps);
const training = await Training.create(ort, {
  signature,
  step: await content(directory, signature.models.train_step.file),
  state: read(await content(directory, signature[values.start].file)),
});

const batches = digits.shuffled(Number(signature.batch) || Number(values.batch)); // a number, or "any"
for (let step = 1; step <= Number(values.steps); step++) {
  const loss = await training.train(batches.next().value);
  console.log(`step ${step} loss ${loss}`);
}
await writeFile(values.weights, write(training.tensors));
console.log(`weights: ${values.weights}`);
