#!/usr/bin/env node
// How near a simulation comes to the machine: fits the cost model and plays three workloads on the embedded engine in turns, plays
// them in virtual time too, and prints mean TTFT, mean TPOT and output throughput of both with their relative differences. Exits
// with 1 when one is above LIMIT.
//
// usage: sim_vs_replay.mjs TWOSTROKE [MODEL]      ROUNDS=3 LIMIT=15 (%) CONTEXT=1024 FLAGS="--device 0" from the environment
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [twostroke, model] = process.argv.slice(2);
if (!twostroke) { console.error("usage: sim_vs_replay.mjs TWOSTROKE [MODEL]"); process.exit(2); }
const rounds = +(process.env.ROUNDS ?? 3), limit = +(process.env.LIMIT ?? 15), context = process.env.CONTEXT ?? "1024";
const flags = [...(model ? ["--model", model] : []), ...(process.env.FLAGS ?? "").split(" ").filter(Boolean)];

// Small enough for a software driver: each takes about half a minute there. The warm-ups are there for the engine to learn what
// its steps cost: until then its chunks are not those of a scheduler that knows. The arrivals keep a software driver half busy: near
// saturation a machine that is a tenth slower for a minute waits twice as long.
const workloads = {
  "all at once": "--num-prompts 8 --random-input-len 96 --random-output-len 24",
  "Poisson arrivals, mixed lengths": "--num-prompts 12 --random-input-len 128 --random-output-len 24 --random-range-ratio 0.7 --request-rate 0.25",
  "shared prefixes": "--dataset-name prefix_repetition --num-prompts 12 --prefix-repetition-num-prefixes 3 --prefix-repetition-prefix-len 128 " +
    "--prefix-repetition-suffix-len 32 --prefix-repetition-output-len 16 --max-concurrency 4",
};
const figures = { "TTFT, ms": "mean_ttft_ms", "TPOT, ms": "mean_tpot_ms", "output, tokens/s": "output_throughput" };

function play(...args) {
  const ran = spawnSync(twostroke, args, { encoding: "utf8", maxBuffer: 1 << 28 });
  if (ran.status !== 0) { console.error(`${args.join(" ")} ended with ${ran.status ?? ran.signal}\n${ran.stderr}`); process.exit(1); }
  return ran.stdout;
}

const folder = mkdtempSync(join(tmpdir(), "sim-vs-replay-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const fit = at => { const file = join(folder, `cost${at}.json`); play("bench", ...flags, "-p", "0", "-n", "0", "--fit", file); return file; };
const seen = {};
let fits = 0, before = fit(fits);
for (let round = 0; round < rounds; round++) {
  for (const [name, line] of Object.entries(workloads)) {
    const args = [...flags, ...line.split(" "), "--max-model-len", context, "--ignore-eos", "--num-warmups", "6", "--seed", String(round), "--json"];
    const live = JSON.parse(play("replay", ...args));
    // Fits and replays in turns: a machine that others use too changes its pace within minutes, so each replay lies between two
    // fits, and what the simulations by both say is averaged.
    const after = fit(++fits);
    const virtual = [before, after].map(cost => JSON.parse(play("sim", "--cost-model", cost, ...args)));
    before = after;
    for (const one of virtual) if (live.completed !== one.completed) { console.error(`${name}: ${live.completed} answers live, ${one.completed} in virtual time`); process.exit(1); }
    const both = field => (virtual[0][field] + virtual[1][field]) / 2;
    (seen[name] ??= []).push(Object.fromEntries(Object.entries(figures).map(([figure, field]) => [figure, [live[field], both(field)]])));
    console.error(`round ${round + 1}, ${name}: ${Object.entries(figures).map(([figure, f]) => `${figure} ${live[f].toFixed(1)} live ${virtual.map(one => one[f].toFixed(1)).join(" and ")} sim`).join("; ")}`);
  }
}

const median = values => { const s = [...values].sort((a, b) => a - b); return s.length % 2 ? s[s.length >> 1] : (s[s.length / 2 - 1] + s[s.length / 2]) / 2; };
let worst = 0;
console.log(`| workload | figure | replay | sim | difference (median of ${rounds}) |\n|---|---|--:|--:|--:|`);
for (const [name, runs] of Object.entries(seen)) for (const figure of Object.keys(figures)) {
  const pairs = runs.map(run => run[figure]), off = median(pairs.map(([live, virtual]) => 100 * (virtual / live - 1)));
  worst = Math.max(worst, Math.abs(off));
  const of = side => median(pairs.map(pair => pair[side])).toFixed(1);
  console.log(`| ${name} | ${figure} | ${of(0)} | ${of(1)} | ${off >= 0 ? "+" : "−"}${Math.abs(off).toFixed(1)} % |`);
}
if (!(worst <= limit)) { console.error(`worst difference ${worst.toFixed(1)} %, at most ${limit} % wanted`); process.exitCode = 1; }
