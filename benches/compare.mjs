#!/usr/bin/env node
// Runs this engine and llama.cpp on one GGUF, in turns, and writes the tables between the markers of benches/README.md and
// README.md. Slower cases are rows like any other.
//
// usage: compare.mjs TWOSTROKE MODEL.gguf [PEER_FOLDER] [--print]      PP, TG, REPEAT from the environment; --print writes no file
//
// In a round each engine is started, warmed up, and measured: ours thrice, for our measurements are short. Tables show medians over
// all rounds, so that a machine which others use too is seen by all engines in the same minutes.
import { spawn } from "node:child_process";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const print_only = process.argv.includes("--print");
const [twostroke, model, peer] = process.argv.slice(2).filter(arg => arg !== "--print");
if (!model) { console.error("usage: compare.mjs TWOSTROKE MODEL.gguf [PEER_FOLDER] [--print]"); process.exit(2); }
const here = dirname(fileURLToPath(import.meta.url));
const pp = +(process.env.PP ?? 128), tg = +(process.env.TG ?? 16), repeat = +(process.env.REPEAT ?? 3);

// Standard output of a program, and the most memory it had (Linux only; sampled).
function play(program, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"], ...options });
    let out = "", peak_kb = 0;
    const sample = setInterval(() => {
      try { peak_kb = Math.max(peak_kb, +/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))?.[1] || 0); } catch { /* gone, or no /proc */ }
    }, 50);
    child.stdout.on("data", data => { out += data; });
    child.on("error", reject);
    child.on("close", code => {
      clearInterval(sample);
      code === 0 ? resolve({ out, peak_kb }) : reject(new Error(`${basename(program)} ${args.join(" ")} ended with ${code}`));
    });
  });
}

const median = values => { const s = [...values].sort((a, b) => a - b); return s[s.length >> 1]; };

async function ours(tier, activations) {
  const args = ["bench", "--model", model, "-p", pp, "-n", tg, "-r", 3, "-o", "json", "--tier", tier, "--activations", activations].map(String);
  const { out, peak_kb } = await play(twostroke, args);
  const rows = JSON.parse(out);
  const rate = (prompt, gen) => { const row = rows.find(r => r.n_prompt === prompt && r.n_gen === gen); return row.samples_ts; };
  const { adapter, model_type } = rows[0];
  return { engine: "twostroke", path: `wgpu, ${tier} tier, ${activations} activations`, adapter, model_type, prefill: rate(pp, 0), decode: rate(0, tg), peak_kb };
}

async function theirs(gpu) {
  const args = [join(here, "peer_llama_cpp.mjs"), model, "--gpu", gpu, "--pp", pp, "--tg", tg, "--repeat", 1, "--threads", cpus().length].map(String);
  const { out, peak_kb } = await play(process.execPath, args, { cwd: peer });
  const row = JSON.parse(out.trim().split("\n").at(-1));
  return { engine: `llama.cpp ${row.release ?? ""}`.trim(), path: gpu === "cpu" ? `its CPU code, ${row.threads} threads` : "its Vulkan backend",
    adapter: gpu === "cpu" ? cpus()[0].model : row.device.join(", "), prefill: [row.pp_tokens_per_s.median], decode: [row.tg_tokens_per_s.median], peak_kb };
}

const engines = [[ours, "subgroup", "f32"], [ours, "subgroup", "int8"], [ours, "base", "f32"], ...(peer ? [[theirs, "vulkan"], [theirs, "cpu"]] : [])];
const rounds = engines.map(() => []);
for (let round = 0; round < repeat; round++) {
  for (const [i, [measure, ...args]] of engines.entries()) {
    try { rounds[i].push(await measure(...args)); } catch (error) { console.error(`(${args.join(" ")}: ${error.message})`); }
  }
}
// The rates over all rounds, and the memory of the one that took most.
const joined = seen => ({ ...seen[0], peak_kb: Math.max(...seen.map(one => one.peak_kb)),
  ...Object.fromEntries(["prefill", "decode"].map(rate => [rate, median(seen.flatMap(one => one[rate]))])) });
const done = rounds.filter(seen => seen.length > 0).map(joined);
const first = done.find(r => r.engine === "twostroke");
if (!first) { console.error("this engine gave no figures"); process.exit(1); }
// What all rows are measured by: the peer on the same adapter, or where there is none our first row.
const vulkan = done.find(r => r.path === "its Vulkan backend");
const reference = vulkan ?? first;

const figure = value => value >= 100 ? value.toFixed(0) : value.toFixed(1);
const times = (r, rate) => r === reference ? "1" : `${(r[rate] / reference[rate]).toPrecision(2)} ×`;
const file_bytes = statSync(model).size;
const table = [
  `${basename(model)} (${(file_bytes / 1e6).toFixed(0)} MB), ${new Date().toISOString().slice(0, 10)}; ${cpus().length} × ${cpus()[0].model.trim()}, ` +
  `${(totalmem() / 2 ** 30).toFixed(0)} GiB; adapter: ${first.adapter}. Medians over ${repeat} rounds, the engines in turns.`, "",
  `| engine | computes with | prefill of ${pp}, tokens/s | decode of ${tg}, tokens/s | ${vulkan ? "of llama.cpp's Vulkan backend" : "of the first row"} (prefill, decode) | peak memory, MiB |`, "|---|---|--:|--:|--:|--:|",
  ...done.map(r => `| ${r.engine} | ${r.path}${r.adapter === first.adapter ? "" : ` (${r.adapter.trim()})`} | ${figure(r.prefill)} | ${figure(r.decode)} | ` +
    `${times(r, "prefill")}, ${times(r, "decode")} | ${r.peak_kb ? (r.peak_kb / 1024).toFixed(0) : "?"} |`),
].join("\n");
console.log(table);

for (const file of print_only ? [] : [join(here, "README.md"), join(here, "..", "README.md")]) {
  const text = readFileSync(file, "utf8"), [begin, end] = ["<!-- make bench writes from here -->", "<!-- to here -->"];
  const from = text.indexOf(begin), to = text.indexOf(end);
  if (from < 0 || to < from) { console.error(`${file} has no markers`); process.exit(1); }
  writeFileSync(file, `${text.slice(0, from + begin.length)}\n${table}\n${text.slice(to)}`);
}
