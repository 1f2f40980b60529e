#!/usr/bin/env node
// SPDX-License-Identifier: MIT
// web_speed.mjs MODULE BERTH: plans 2,000 items without a time limit with the WebAssembly module and with the program, and prints the
// shortest times of the planner. Fails if the module takes more than RATIO_MAX times as long.
import {execFileSync} from "node:child_process";
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from "node:fs";
import {createRequire} from "node:module";
import {tmpdir} from "node:os";
import {join, resolve} from "node:path";

const N = 2000, N_RUNS = 15, RATIO_MAX = 3;
const [modulePath, berthPath] = process.argv.slice(2);

// Items of random sizes that live for up to 200 steps, so that about 100 are alive at once.
function csv() {
  let seed = 1;
  const draw = n => (seed = (seed * 48271) % 2147483647) % n;
  const rows = ["id,lower,upper,size"];
  for (let i = 0; i < N; i++) {
    rows.push(`t${i},${i},${i + 1 + draw(200)},${64 * (1 + draw(4096))}`);
  }
  return rows.join("\n") + "\n";
}

const folder = mkdtempSync(join(tmpdir(), "berth-web-"));
try {
  const path = join(folder, "items.csv");
  writeFileSync(path, csv());
  const module = await createRequire(import.meta.url)(resolve(modulePath))({});
  createRequire(import.meta.url)("../../src/web/page/worker.js");
  let web = Infinity, native = Infinity;
  for (let i = 0; i < N_RUNS; i++) {
    const result = globalThis.berthPageOf(module, "items.csv", readFileSync(path), 0);
    if (result.error) {
      throw new Error(result.error);
    }
    web = Math.min(web, result.us / 1000);
    const plan = JSON.parse(execFileSync(berthPath, ["plan", "--json", path]));
    native = Math.min(native, plan.ms);
  }
  console.log(`${N} items: WebAssembly ${web.toFixed(2)} ms, native ${native.toFixed(2)} ms: ${(web / native).toFixed(2)} times`);
  process.exitCode = web <= RATIO_MAX * native ? 0 : 1;
} finally {
  rmSync(folder, {recursive: true});
}
