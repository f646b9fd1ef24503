/** All computations, beside the page: it stays responsive, and goes on training in a tab that is not visible. */

import { Digits, SIDE } from "./digits.js";
import { preprocess } from "./preprocessing.js";
import { read, write } from "./safetensors.js";
import { Training } from "./training.js";
import * as ort from "./vendor/ort.wasm.bundle.min.mjs";

const BATCH = 32;
const TEST_BATCH = 60;
const SHOWN = 40; // misread digits that are shown at most

ort.env.wasm.numThreads = 1; // threads would need headers that a plain server of files does not send
ort.env.wasm.wasmPaths = { wasm: new URL("vendor/ort-wasm-simd-threaded.wasm", import.meta.url).href };

let training, start, digits, tests, batches, learningRate;
let stepsLeft = 0;
let isDue = false; // the next step
let last = Promise.resolve(); // of all computations
const turns = new MessageChannel(); // between two steps, messages of the page have their turn
turns.port1.onmessage = () => inTurn(step);

const ACTIONS = {
  train: ({ epochs }) => {
    stepsLeft = epochs * stepsPerEpoch();
    post("training");
    next();
  },
  pause: async () => {
    stepsLeft = 0;
    await evaluate(); // so that the accuracy is that of the weights that may be saved now
    post("ended");
  },
  reset: () => begin(start),
  rate: ({ value }) => (learningRate = value),
  classify: async ({ image }) => post("classified", { probabilities: await classify(image) }),
  sample: () => {
    const row = Math.floor(Math.random() * tests.length);
    post("sample", { image: tests.image(row), label: tests.labels[row] });
  },
  save: () => {
    const content = write(training.tensors);
    post("weights", { content }, [content.buffer]);
  },
  open: async ({ content }) => {
    await begin(read(content));
    await evaluate();
  },
};

inTurn(load);
onmessage = ({ data: { kind, ...values } }) => inTurn(() => ACTIONS[kind](values));

/** One computation at a time: the runtime does not run two at once. */
function inTurn(work) {
  last = last.then(work).catch((error) => {
    stepsLeft = 0;
    post("problem", { text: error.message });
  });
}

function next() {
  if (!isDue) turns.port2.postMessage(null);
  isDue = true;
}

function post(kind, values = {}, moved = []) {
  postMessage({ kind, ...values }, moved);
}

/** The content of a file next to the page. */
async function file(name) {
  const response = await fetch(new URL(name, import.meta.url));
  if (response.ok) return response.arrayBuffer();
  const repair = name.startsWith("model/") ? "runner export RUN --to model" : "python digits.py";
  throw new Error(`${name} is missing: run ${repair} in the directory of this page`);
}

async function load() {
  const signature = JSON.parse(new TextDecoder().decode(await file("model/signature.json")));
  if (signature.batch !== "any") throw new Error(`this page needs a free batch size, and the network has ${signature.batch}`);
  const { models, preprocessing, initial } = signature;
  const names = [models.train_step.file, models.inference.file, initial.file].map((name) => `model/${name}`);
  const [step, inference, arrays, images] = await Promise.all([...names, "digits.safetensors"].map(file));
  start = read(arrays);
  training = await Training.create(ort, { signature, step, inference, state: start });
  [digits, tests] = ["train", "test"].map((split) => new Digits(images, split, preprocessing[0].steps));
  learningRate = signature.learning_rate;
  begin(start);
  const parameters = training.inputs.filter(({ role }) => role === "parameter").map(({ shape }) => shape);
  const size = parameters.reduce((sum, shape) => sum + shape.reduce((product, length) => product * length, 1), 0);
  post("ready", { parameters: size, learningRate, digits: digits.length, tests: tests.length });
}

/** Start again from these weights, with the order of the first epoch. */
function begin(tensors) {
  training.load(tensors);
  batches = digits.shuffled(BATCH);
  stepsLeft = 0;
  post("begun");
}

function stepsPerEpoch() {
  return Math.floor(digits.length / BATCH);
}

async function step() {
  isDue = false;
  if (!stepsLeft) return;
  const begun = performance.now();
  const loss = await training.train(batches.next().value, learningRate);
  post("step", { loss, milliseconds: performance.now() - begun });
  if (!Number.isFinite(loss)) throw new Error("the loss is no longer finite: start over with a lower learning rate");
  stepsLeft -= 1;
  if (training.steps % stepsPerEpoch() === 0) await evaluate();
  if (stepsLeft) next();
  else post("ended");
}

async function evaluate() {
  const misread = [];
  let row = 0;
  for (const [images, labels] of tests.inOrder(TEST_BATCH)) {
    const scores = rows(await training.predict(images));
    scores.forEach((values, k) => {
      const read = values.indexOf(Math.max(...values));
      if (read !== labels.data[k]) misread.push({ image: tests.image(row), label: labels.data[k], read });
      row += 1;
    });
  }
  const correct = tests.length - misread.length;
  const epoch = Number((training.steps / stepsPerEpoch()).toFixed(1));
  post("evaluated", { epoch, correct, of: tests.length, misread: misread.slice(0, SHOWN) });
}

async function classify(image) {
  const inputs = preprocess({ data: image, shape: [1, SIDE, SIDE, 1] }, training.signature.preprocessing[0].steps);
  const [scores] = rows(await training.predict(inputs));
  const powers = scores.map((score) => Math.exp(score - Math.max(...scores)));
  const sum = powers.reduce((total, power) => total + power);
  return powers.map((power) => power / sum);
}

function rows({ data, shape: [count, length] }) {
  return Array.from({ length: count }, (_, k) => Array.from(data.subarray(k * length, (k + 1) * length)));
}
