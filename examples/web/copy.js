/** Copies onnxruntime-web into vendor/, next to the page, which loads nothing from other hosts: npm run copy */
import { copyFile, mkdir } from "node:fs/promises";

const FILES = ["ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"];
const place = (path) => new URL(path, import.meta.url);

await mkdir(place("vendor/"), { recursive: true });
for (const name of FILES) await copyFile(place(`node_modules/onnxruntime-web/dist/${name}`), place(`vendor/${name}`));
console.log(`copied to vendor/: ${FILES.join(", ")}`);
