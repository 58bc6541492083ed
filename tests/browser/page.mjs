#!/usr/bin/env node
// The page in a real browser, served by our own server: the engine inside prefills and decodes, two chats are one batch, an answer is
// stopped and the next one whole, a model is fetched once, and what cannot work is said in words.
//
// usage: page.mjs TWOSTROKE MODEL.gguf OUT      pictures go into OUT
// Ends with 1 when anything is not as it must be.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch, launch_kept } from "./browser.mjs";

const [twostroke, model, out] = process.argv.slice(2);
if (!out) { console.error("usage: page.mjs TWOSTROKE MODEL.gguf OUT"); process.exit(2); }
mkdirSync(out, { recursive: true });
const golden = name => JSON.parse(readFileSync(new URL(`../data/golden/${name}.json`, import.meta.url)));
const minute = 60_000;
const say = text => console.error(`page: ${text}`);

// Our server; resolves to its address and the process.
function serve(model) {
  const child = spawn(twostroke, ["serve", "--port", "0", "--device", "twin", "--model", model], { stdio: ["ignore", "ignore", "pipe"] });
  return new Promise((done, failed) => {
    let text = "";
    let url;
    child.stderr.on("data", chunk => {
      text += chunk;
      url ??= text.match(/listening at (http:\S+)/)?.[1];
      if (url && text.includes("ready:")) done({ url, child });
    });
    child.on("exit", code => failed(new Error(`the server ended with ${code}: ${text}`)));
  });
}

// A page that has begun, and what it wrote to its console.
async function opened(context, url) {
  const page = await context.newPage();
  page.wrong = [];
  page.on("console", message => { if (message.type() === "error") page.wrong.push(message.text()); });
  page.on("pageerror", error => page.wrong.push(String(error)));
  const began = Date.now();
  await page.goto(url);
  await page.waitForFunction(() => document.body.dataset.state, null, { timeout: 2 * minute });
  page.began_ms = Date.now() - began;
  return page;
}
const state = page => page.evaluate(() => JSON.parse(window.twostroke.state()));
// Waits until `good` is true of the state; the state.
async function until(page, what, good, limit = 10 * minute) {
  const end = Date.now() + limit;
  for (;;) {
    const now = await state(page);
    if (good(now)) return now;
    if (now.trouble) throw new Error(`${what}: ${now.trouble}`);
    if (page.wrong.length > 0) throw new Error(`${what}: ${page.wrong.join("; ")}`);
    if (Date.now() > end) throw new Error(`${what}: not within ${limit / 1000} s: ${JSON.stringify(now).slice(0, 2000)}`);
    await new Promise(resume => setTimeout(resume, 300));
  }
}
const is_open = now => now.facts && !now.busy;
const all_done = now => now.answers.every(answer => answer.done);
const last = now => now.answers.at(-1);

async function the_toy_answers_as_natively(page) {
  await page.evaluate(() => window.twostroke.open(true));
  const now = await until(page, "open the toy", is_open);
  assert.equal(now.facts.tier, "base");
  const item = golden("smollm2_draft_7m").items[0];
  await page.evaluate(({ ids }) => window.twostroke.go_on(new Uint32Array(ids), 16), item);
  const done = await until(page, "the toy's answer", all_done);
  assert.deepEqual(last(done).ids, item.greedy.slice(0, 16), "ids of the toy: expected transformers'");
  const native = execFileSync(twostroke, ["run", "--device", "twin", "--model", "toy", "--raw", "-p", item.prompt, "--max-tokens", "16", "--temperature", "0", "--ignore-eos", "--json"]);
  assert.deepEqual(last(done).ids, JSON.parse(native).output_ids, "ids of the toy: expected the native run's");
  say(`the toy's 16 ids are transformers' and the native run's (${done.facts.adapter}, tier ${done.facts.tier})`);
}

// F69: two generations on one engine, begun without waiting.
async function two_chats_are_one_batch(page) {
  await page.evaluate(() => window.twostroke.set(0, 24));
  const questions = ["Tell me about a fox.", "What is the sea?"];
  const alone = [];
  for (const question of questions) {
    await page.evaluate(text => window.twostroke.ask(text, true), question);
    alone.push(last(await until(page, `alone: ${question}`, all_done)).ids);
  }
  const before = await state(page);
  await page.evaluate(([one, two]) => { window.twostroke.ask(one, true); window.twostroke.ask(two, true); }, questions);
  const done = await until(page, "both at once", all_done);
  assert.deepEqual(done.answers.slice(-2).map(answer => answer.ids), alone, "an answer in company: expected that of the question alone");
  assert.ok(done.steps_shared > before.steps_shared, "two chats at once: expected steps that decode for both");
  const row = done.rows.at(-1);
  assert.ok(row.chunks >= 1 && row.ticks >= 8, `the timeline's newest row: expected chunks and ticks, got ${JSON.stringify(row)}`);
  say(`two chats shared ${done.steps_shared - before.steps_shared} steps, each with the ids it has alone`);
  return { question: questions[0], ids: alone[0] };
}

async function stop_works_and_the_next_answer_is_whole(page, { question, ids }) {
  await page.evaluate(ids => window.twostroke.go_on(new Uint32Array(ids), 400), golden("smollm2_draft_7m").items[0].ids);
  await until(page, "some of an answer", now => last(now).ids.length >= 4);
  await page.evaluate(() => window.twostroke.stop());
  const stopped = last(await until(page, "the stop", all_done));
  assert.equal(stopped.done, "Stopped");
  assert.ok(stopped.ids.length < 400, "a stopped answer: expected fewer tokens than asked for");
  await page.evaluate(text => window.twostroke.ask(text, true), question);
  const next = last(await until(page, "the next answer", all_done));
  assert.deepEqual(next.ids, ids, "the answer after a stop: expected it whole");
  say(`an answer was stopped after ${stopped.ids.length} tokens, the next one is whole`);
}

async function the_default_model_is_fetched_once(context, url) {
  const fetched = [];
  context.on("request", request => { if (request.url().endsWith("/model.gguf") && request.method() === "GET") fetched.push(request); });
  let page = await opened(context, url);
  await page.evaluate(() => window.twostroke.open(false));
  await until(page, "open the default model", is_open, 5 * minute);
  assert.ok(fetched.length > 1, "the model comes in pieces");
  const item = golden("smollm2_q4_1").items.toSorted((a, b) => a.ids.length - b.ids.length)[0];
  await page.evaluate(({ ids }) => window.twostroke.go_on(new Uint32Array(ids), 8), item);
  const done = await until(page, "the default model's answer", all_done, 12 * minute);
  assert.deepEqual(last(done).ids, item.greedy.slice(0, 8), "ids of the default model: expected transformers'");
  await page.screenshot({ path: join(out, "page_default_model.png") });
  say(`the default model's 8 ids are transformers' (${item.ids.length} prompt tokens)`);
  await page.close();
  fetched.length = 0;
  page = await opened(context, url);
  await page.evaluate(() => window.twostroke.open(false));
  const again = await until(page, "open it again", is_open, 5 * minute);
  assert.equal(again.facts.model, done.facts.model);
  assert.equal(fetched.length, 0, "a reload: expected no second download");
  say("a reload opens it without a download");
  await page.close();
}

async function a_file_too_large_is_refused_by_its_size(page) {
  await page.evaluate(() => {
    // 3 GB that nobody holds: what is read of it would fail.
    const file = new File(["x"], "huge.gguf");
    Object.defineProperty(file, "size", { value: 3 * 2 ** 30 });
    file.arrayBuffer = () => { window.was_read = true; return Promise.reject(new Error("read")); };
    const transfer = { files: { length: 1, item: () => file, 0: file } };
    const event = new Event("drop", { bubbles: true, cancelable: true });
    Object.defineProperty(event, "dataTransfer", { value: transfer });
    document.getElementById("app").dispatchEvent(event);
  });
  const now = await until(page, "the refusal", now => now.note, minute);
  assert.match(now.note, /huge\.gguf: 3222 MB are more than a page can hold/);
  assert.equal(await page.evaluate(() => window.was_read), undefined);
  say("a file of 3 GB is refused before it is read");
}

async function without_webgpu_it_says_so(url) {
  const browser = await launch(["--no-sandbox", "--disable-gpu"]);
  const page = await browser.newPage();
  await page.addInitScript(() => Object.defineProperty(Navigator.prototype, "gpu", { get: () => undefined }));
  await page.goto(url);
  await page.waitForFunction(() => document.body.dataset.state === "failed", null, { timeout: minute });
  assert.match(await page.textContent("#message"), /no WebGPU/);
  await browser.close();
  say("without WebGPU the page says so");
}

const folder = mkdtempSync(join(tmpdir(), "twostroke-page-"));
const { url, child } = await serve(model);
let code = 0;
try {
  const headers = (await fetch(url)).headers;
  assert.match(headers.get("content-security-policy") ?? "", /script-src 'self' 'wasm-unsafe-eval'/);
  await without_webgpu_it_says_so(url);
  const context = await launch_kept(folder, { viewport: { width: 1280, height: 800 } });
  const page = await opened(context, url);
  say(`the page began after ${page.began_ms} ms`);
  assert.equal(await page.evaluate(() => document.body.dataset.state), "started", await page.textContent("#message"));
  await the_toy_answers_as_natively(page);
  const known = await two_chats_are_one_batch(page);
  await stop_works_and_the_next_answer_is_whole(page, known);
  await a_file_too_large_is_refused_by_its_size(page);
  assert.match(await page.textContent("#status"), /toy is open on/);
  await page.screenshot({ path: join(out, "page_toy.png") });
  assert.deepEqual(page.wrong, [], "errors in the console");
  await page.close();
  await the_default_model_is_fetched_once(context, url);
  await context.close();
} catch (error) {
  console.error(error);
  code = 1;
} finally {
  child.removeAllListeners("exit");
  child.kill();
  rmSync(folder, { recursive: true, force: true });
}
process.exit(code);
