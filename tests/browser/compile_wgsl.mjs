#!/usr/bin/env node
// Compiles WGSL texts with a real browser, which is stricter than naga: createShaderModule and getCompilationInfo of each, and
// createComputePipelineAsync of entry point `main` with an automatic layout. The device asks for no feature and no limit
// above WebGPU's defaults, as the base tier does. A module takes 20 ms; a pipeline is machine code for the CPU here and takes
// seconds, so without --all only short texts and every sixteenth of the others get one.
//
// usage: node compile_wgsl.mjs TEXTS.json [--all]      {label: text, …}
// Ends with 1 on any error, or when the browser or its WebGPU can't be had. CHROMIUM names the browser.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { launch } from "./browser.mjs";

const batch_texts = 8;           // compiled at once, so that one answer from the page stays small
const limit_ms = 240_000;        // for one batch
const report_ms = 60_000;        // between two lines that say how far it is
const short_chars = 12_000;      // a text whose pipeline is cheap
const pipeline_stride = 16;      // of the long ones

const [path, all] = process.argv.slice(2);
if (!path || (all && all !== "--all")) { console.error("usage: compile_wgsl.mjs TEXTS.json [--all]"); process.exit(2); }
const texts = Object.entries(JSON.parse(readFileSync(path, "utf8")))
  .map(([label, code], i) => ({ label, code, pipeline: !!all || code.length < short_chars || i % pipeline_stride === 0 }));
if (texts.length === 0) { console.error(`${path} holds no shader`); process.exit(1); }

// navigator.gpu exists in secure contexts only; localhost is one.
async function serve() {
  const server = createServer((_, response) => {
    response.writeHead(200, { "content-type": "text/html" });
    response.end("<!doctype html><link rel=icon href='data:,'><title>shaders</title>");
  });
  await new Promise(done => server.listen(0, "127.0.0.1", done));
  return server;
}

// Runs in the page.
async function open_device() {
  if (!navigator.gpu) return { error: "no navigator.gpu" };
  const adapter = await navigator.gpu.requestAdapter();
  if (!adapter) return { error: "no WebGPU adapter" };
  const device = await adapter.requestDevice();
  globalThis.device = device;
  device.lost.then(info => { globalThis.lost = `${info.reason}: ${info.message}`; });
  const { vendor, architecture, description } = adapter.info;
  return { adapter: [vendor, architecture, description].filter(Boolean).join(" ") };
}

// Runs in the page.
async function compile(batch) {
  return Promise.all(batch.map(async ({ label, code, pipeline }) => {
    const messages = [];
    const note = (type, message, line = 0, column = 0) => messages.push({ type, message, line, column });
    try {
      device.pushErrorScope("validation");
      const module = device.createShaderModule({ label, code });
      const scope = device.popErrorScope();
      for (const m of (await module.getCompilationInfo()).messages) note(m.type, m.message, m.lineNum, m.linePos);
      const invalid = await scope;
      if (invalid && !messages.some(m => m.type === "error")) note("error", invalid.message);
      if (pipeline && !messages.some(m => m.type === "error"))
        await device.createComputePipelineAsync({ label, layout: "auto", compute: { module, entryPoint: "main" } });
    } catch (error) { note("error", `${error.reason ?? error.name}: ${error.message}`); }
    if (globalThis.lost) note("error", `device lost: ${globalThis.lost}`);
    return { label, messages };
  }));
}

function print(result, code) {
  for (const { type, message, line, column } of result.messages) {
    console.log(`${type}: ${result.label}:${line}:${column}: ${message.trim()}`);
    const source = line > 0 ? code.split("\n")[line - 1] : undefined;
    if (source !== undefined) console.log(`    ${source}`);
  }
}

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`${what} took longer than ${limit_ms / 1000} s`)), limit_ms); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

const server = await serve();
const browser = await launch();
let wrong = 0, warnings = 0, status = 1;
try {
  const page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
  const opened = await within(page.evaluate(open_device), "opening the device");
  if (opened.error) throw new Error(opened.error);
  console.log(`${browser.version()} on ${opened.adapter || "an unnamed adapter"}: ${texts.length} shaders`);
  const started = performance.now();
  let reported = started;
  for (let at = 0; at < texts.length; at += batch_texts) {
    const batch = texts.slice(at, at + batch_texts);
    const results = await within(page.evaluate(compile, batch), `compiling ${batch[0].label} and ${batch.length - 1} more`);
    results.forEach((result, i) => {
      print(result, batch[i].code);
      if (result.messages.some(m => m.type === "error")) wrong += 1;
      warnings += result.messages.filter(m => m.type === "warning").length;
    });
    if (performance.now() - reported >= report_ms) {
      reported = performance.now();
      console.log(`${at + batch.length} of ${texts.length} after ${((reported - started) / 1000).toFixed(0)} s`);
    }
  }
  console.log(`${texts.length - wrong} of ${texts.length} compile (${texts.filter(t => t.pipeline).length} to pipelines), ${warnings} warnings, ${((performance.now() - started) / 1000).toFixed(1)} s`);
  status = wrong === 0 ? 0 : 1;
} catch (error) {
  console.error(`shaders in a browser: ${error.message}`);
} finally {
  await browser.close();
  server.close();
}
process.exit(status);
