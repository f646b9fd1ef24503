/**
 * The safetensors format: named arrays in one file, which cannot contain code.
 *
 * A file is the length of a header (8 bytes, little-endian), the header (JSON: element type, shape and place of each
 * array), and the arrays behind one another.
 */

const ARRAYS = {
  F64: Float64Array,
  F32: Float32Array,
  F16: Uint16Array, // as bits: not every browser has Float16Array
  I64: BigInt64Array,
  I32: Int32Array,
  I16: Int16Array,
  I8: Int8Array,
  U64: BigUint64Array,
  U32: Uint32Array,
  U16: Uint16Array,
  U8: Uint8Array,
  BOOL: Uint8Array,
};
const PREFIX = 8;

/**
 * The arrays of a file, by name: {dtype, shape, data}. `content` is an ArrayBuffer.
 * Throws an Error for a file that is cut, has places outside of itself, or unknown element types.
 */
export function read(content) {
  const [entries, start] = headerOf(content);
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets: place }] of Object.entries(entries)) {
    const Elements = ARRAYS[dtype];
    if (!Elements) throw new Error(`${name} has the unknown element type ${dtype}`);
    const size = shape.reduce((product, length) => product * length, Elements.BYTES_PER_ELEMENT);
    const [first, end] = place.map((offset) => start + offset);
    if (!(first >= start && end <= content.byteLength && end - first === size))
      throw new Error(`${name} needs ${size} bytes and is not at ${place} of this file`);
    tensors[name] = { dtype, shape, data: new Elements(content.slice(first, end)) };
  }
  return tensors;
}

/** The bytes of a file with these arrays, as `read` returns them. Throws an Error for an unknown element type. */
export function write(tensors) {
  const entries = {};
  let end = 0;
  for (const [name, { dtype, shape, data }] of Object.entries(tensors)) {
    if (!(data instanceof (ARRAYS[dtype] ?? Object))) throw new Error(`${name} is not of the element type ${dtype}`);
    entries[name] = { dtype, shape, data_offsets: [end, (end += data.byteLength)] };
  }
  let header = new TextEncoder().encode(JSON.stringify(entries));
  const padding = (PREFIX - (header.length % PREFIX)) % PREFIX; // arrays begin at a multiple of 8
  header = new Uint8Array([...header, ...new Uint8Array(padding).fill(0x20)]);
  const content = new Uint8Array(PREFIX + header.length + end);
  new DataView(content.buffer).setBigUint64(0, BigInt(header.length), true);
  content.set(header, PREFIX);
  for (const [name, { data }] of Object.entries(tensors)) {
    const place = PREFIX + header.length + entries[name].data_offsets[0];
    content.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), place);
  }
  return content;
}

/** The entries of the header, without its texts about the file, and where the arrays begin. */
function headerOf(content) {
  const size = content.byteLength < PREFIX ? Infinity : Number(new DataView(content).getBigUint64(0, true));
  if (PREFIX + size > content.byteLength) throw new Error("this is not a whole safetensors file");
  let entries;
  try {
    entries = JSON.parse(new TextDecoder().decode(new Uint8Array(content, PREFIX, size)));
  } catch {
    throw new Error("this is not a safetensors file");
  }
  delete entries.__metadata__;
  return [entries, PREFIX + size];
}
