/** What the page shows and its buttons do. Computations are in `worker.js`. */

import { Chart } from "./chart.js";
import { SIDE } from "./digits.js";
import { Drawing } from "./drawing.js";
import { digitOf } from "./strokes.js";

const EPOCHS = 20; // of one press of the button
const RATES = [0.1, 0.3, 1, 3, 10]; // multiples of the learning rate of the run
const READ_AGAIN = 10; // steps until the digit is read again while the network learns

export const losses = []; // of every step since the start

const $ = (id) => document.getElementById(id);
const worker = new Worker("worker.js", { type: "module" });
const send = (kind, values = {}) => worker.postMessage({ kind, ...values });
const chart = new Chart($("chart"));
const drawing = new Drawing($("drawing"), (strokes) => read(digitOf(strokes), strokes.length > 0));
const bars = Array.from({ length: 10 }, (_, digit) => makeBar(digit));
let isTraining = false;
let shown = null; // the digit that is classified
let isReading = false; // the worker has not answered yet
let isOutdated = false; // what it is going to answer
let milliseconds = 0; // of a step, a running mean

const SHOW = {
  ready({ parameters, learningRate, digits, tests }) {
    const number = (value) => value.toLocaleString("en");
    $("facts").textContent = `${number(parameters)} parameters, ${number(digits)} digits to learn from, ${tests} to test it.`;
    for (const factor of RATES) {
      const rate = Number((factor * learningRate).toPrecision(4));
      $("rate").add(new Option(String(rate), String(rate), false, factor === 1));
    }
    document.querySelectorAll("button, select").forEach((control) => (control.disabled = false));
    notice("");
  },
  begun() {
    losses.length = 0;
    chart.show(losses);
    for (const id of ["loss", "accuracy", "speed"]) $(id).textContent = "–";
    $("epoch").textContent = "0";
    showMisread([], "They appear here after the first epoch. The network is never trained on the test digits.");
    setTraining(false);
    readAgain();
  },
  training: () => setTraining(true),
  step({ loss, milliseconds: taken }) {
    losses.push(loss);
    milliseconds = losses.length === 1 ? taken : 0.95 * milliseconds + 0.05 * taken;
    chart.show(losses);
    $("loss").textContent = loss.toFixed(3);
    $("speed").textContent = `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`;
    if (losses.length % READ_AGAIN === 0) readAgain();
  },
  evaluated({ epoch, correct, of, misread }) {
    $("epoch").textContent = epoch;
    $("accuracy").textContent = `${((100 * correct) / of).toFixed(1)} %`;
    $("accuracy").title = `${correct} of ${of} test digits`;
    const missed = of - correct;
    const rest = missed > misread.length ? `; here are ${misread.length} of them` : "";
    showMisread(misread, `${missed || "None"} of ${of}${rest}.`);
    readAgain();
  },
  ended() {
    setTraining(false);
    $("status").textContent = `Epoch ${$("epoch").textContent}: ${$("accuracy").textContent} of the test digits are read correctly.`;
  },
  classified({ probabilities }) {
    isReading = false;
    if (shown) showProbabilities(probabilities);
    if (isOutdated) readAgain();
  },
  sample({ image, label }) {
    drawing.clear();
    read(image, true);
    $("hint").textContent = `A test digit: ${label}`;
  },
  weights({ content }) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content]));
    link.download = "weights.safetensors";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  },
  problem({ text }) {
    notice(text);
    setTraining(false);
  },
};

worker.onmessage = ({ data: { kind, ...values } }) => SHOW[kind](values);
worker.onerror = () => notice("vendor/ is missing: run npm install and npm run copy in the directory of this page.");

$("train").onclick = () => {
  if (!isTraining) notice("");
  send(isTraining ? "pause" : "train", { epochs: EPOCHS });
};
$("reset").onclick = () => {
  notice("");
  send("reset");
};
$("rate").onchange = () => send("rate", { value: Number($("rate").value) });
$("clear").onclick = () => drawing.clear();
$("sample").onclick = () => send("sample");
$("save").onclick = () => send("save");
$("open").onclick = () => $("file").click();
$("file").onchange = async () => {
  const [file] = $("file").files;
  $("file").value = ""; // so that the same file can be opened again
  notice("");
  if (file) send("open", { content: await file.arrayBuffer() });
};

function setTraining(value) {
  isTraining = value;
  $("train").textContent = value ? "Pause" : losses.length ? "Train on" : "Train";
}

/** Show what the network sees, and have it classified. */
function read(image, isDigit) {
  shown = isDigit ? image : null;
  paint($("seen"), image);
  $("hint").textContent = isDigit ? "" : "Draw a digit from 0 to 9";
  if (isDigit) readAgain();
  else showProbabilities(null);
}

function readAgain() {
  isOutdated = isReading;
  if (!shown || isReading) return;
  isReading = true;
  send("classify", { image: shown });
}

function showProbabilities(probabilities) {
  const best = probabilities ? probabilities.indexOf(Math.max(...probabilities)) : null;
  $("answer").textContent = best ?? "–";
  $("certainty").textContent = probabilities ? `${percent(probabilities[best])} sure` : "its answer";
  bars.forEach((bar, digit) => {
    const share = probabilities?.[digit] ?? 0;
    bar.item.classList.toggle("best", digit === best);
    bar.meter.style.setProperty("--share", share);
    bar.number.textContent = probabilities ? percent(share) : "";
  });
}

function percent(share) {
  return `${Math.round(100 * share)} %`;
}

function makeBar(digit) {
  const [item, name, meter, number] = ["li", "b", "i", "span"].map((tag) => document.createElement(tag));
  name.textContent = digit;
  item.append(name, meter, number);
  $("bars").append(item);
  return { item, meter, number };
}

function showMisread(misread, text) {
  $("misread-note").textContent = text;
  $("misread").replaceChildren(
    ...misread.map(({ image, label, read }) => {
      const [item, canvas, words] = ["li", "canvas", "span"].map((tag) => document.createElement(tag));
      Object.assign(canvas, { width: SIDE, height: SIDE, className: "ink pixels" });
      paint(canvas, image);
      words.textContent = `${label} read as ${read}`;
      item.append(canvas, words);
      return item;
    }),
  );
}

/** The bytes of an image as black ink of that opacity; the style inverts it on dark paper. */
function paint(canvas, image) {
  const pixels = new ImageData(SIDE, SIDE);
  image.forEach((ink, k) => (pixels.data[4 * k + 3] = ink));
  canvas.getContext("2d").putImageData(pixels, 0, 0);
}

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}
