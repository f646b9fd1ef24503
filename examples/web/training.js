/**
 * Training with an exported step: `train_step.onnx` takes a batch and the parameters, and gives the loss and the new
 * parameters. `signature.json` says which output is the input of the next step. The same code runs in a page and in
 * Node: `ort` is the module onnxruntime-web or onnxruntime-node.
 */

/** The element types of onnxruntime, with their names in a state file. */
const DTYPES = {
  float32: "F32",
  float64: "F64",
  float16: "F16",
  int64: "I64",
  int32: "I32",
  uint32: "U32",
  uint8: "U8",
  bool: "BOOL",
};

export class Training {
  /** `files` has the contents of an exported directory: {signature, step, state, inference}, the last one if wanted. */
  static async create(ort, files) {
    const options = { logSeverityLevel: 3 };
    const step = await ort.InferenceSession.create(files.step, options);
    const inference = files.inference && (await ort.InferenceSession.create(files.inference, options));
    return new Training(ort, files.signature, step, inference, files.state);
  }

  constructor(ort, signature, step, inference, state) {
    Object.assign(this, { ort, signature, step, inference, state: {} });
    this.inputs = signature.models.train_step.inputs;
    this.outputs = signature.models.train_step.outputs;
    this.load(state);
  }

  /** Begin with these arrays ({dtype, shape, data} by name). Throws an Error when one is missing or has another shape. */
  load(tensors) {
    const state = {};
    for (const { name, type, shape } of this.inputs.filter((input) => input.name in this.entries)) {
      const found = tensors[this.entries[name]];
      if (!found) throw new Error(`the file does not have ${this.entries[name]}`);
      if (String(found.shape) !== String(shape) || found.dtype !== DTYPES[type])
        throw new Error(`${name} is ${found.dtype} [${found.shape}] in the file, and ${DTYPES[type]} [${shape}] here`);
      state[name] = new this.ort.Tensor(type, found.data, found.shape);
    }
    this.state = state;
    this.steps = 0;
  }

  /** Parameters and the state of the optimizer, as `load` takes them. */
  get tensors() {
    const named = Object.entries(this.state);
    return Object.fromEntries(
      named.map(([name, { type, dims, data }]) => [this.entries[name], { dtype: DTYPES[type], shape: [...dims], data }]),
    );
  }

  /** The name in the state file of each input that is a parameter or a state. */
  get entries() {
    return this.signature.state.entries;
  }

  /** One step with a batch, a list of {data, shape}: data first, then targets. Returns the loss. */
  async train(batch, learningRate = this.signature.learning_rate) {
    const feeds = { ...this.state };
    const given = [...batch];
    for (const { name, type, role } of this.inputs) {
      if (role === "data" || role === "target") feeds[name] = this.tensor(type, given.shift());
      else if (role === "learning_rate") feeds[name] = this.scalar(type, learningRate);
      else if (role === "step") feeds[name] = this.scalar(type, this.steps);
    }
    const results = await this.step.run(feeds);
    for (const { name, feeds: next } of this.outputs) if (next) this.state[next] = results[name];
    this.steps += 1;
    return Number(results[this.outputs.find(({ role }) => role === "loss").name].data[0]);
  }

  /** The scores of a batch, one row per image: {data, shape}. */
  async predict(batch) {
    const feeds = {};
    for (const { name, type, role } of this.signature.models.inference.inputs)
      feeds[name] = role === "data" ? this.tensor(type, batch) : this.state[name];
    const [{ data, dims }] = Object.values(await this.inference.run(feeds));
    return { data, shape: dims };
  }

  tensor(type, { data, shape }) {
    return new this.ort.Tensor(type, data, shape);
  }

  scalar(type, value) {
    const data = { float32: Float32Array, int32: Int32Array, int64: BigInt64Array }[type];
    return new this.ort.Tensor(type, data.of(type === "int64" ? BigInt(value) : value), []);
  }
}
