// Starts the app, or says in words why it cannot start here. Mirrors its state into a live region: a canvas has nothing to read out.

import init, { Page } from './twostroke_app.js';

const canvas = document.getElementById('app');
const message = document.getElementById('message');
const mirror = document.getElementById('status');

function say(...lines) {
  message.replaceChildren(...lines.map((line) => Object.assign(document.createElement('p'), { textContent: line })));
  document.body.dataset.state = 'failed';
}

// Why the engine cannot run in this browser, if it cannot.
async function obstacle() {
  if (!window.isSecureContext) {
    return ['This page was not reached safely, and browsers then give no page the GPU.',
      'Open it by https, or as http://localhost on the machine that serves it.'];
  }
  if (!navigator.gpu) {
    return ['This browser has no WebGPU, which Twostroke computes with.',
      'Chrome and Edge have it from 113 on, Safari from 26, Firefox from 141 on Windows and 145 on macOS; it may be switched off in the settings.',
      'The desktop program runs on any Vulkan, Metal or DX12 driver.'];
  }
  const adapter = await navigator.gpu.requestAdapter().catch(() => null);
  if (!adapter) {
    return ['This browser has WebGPU, and no graphics adapter for it.',
      'Its graphics driver may be too old or on the browser\'s block list: chrome://gpu tells.',
      'The desktop program runs on any Vulkan, Metal or DX12 driver.'];
  }
  return null;
}

async function start() {
  const why = await obstacle();
  if (why) return say(...why);
  await init();
  const page = new Page();
  window.twostroke = page;
  await page.start(canvas);
  message.replaceChildren();
  document.body.dataset.state = 'started';
  setInterval(() => {
    const panic = page.panic();
    if (panic) return say('Twostroke has met a fault of its own and stands still. Reload the page; nothing is lost but what was being answered.', panic);
    if (page.is_lost()) {
      return say('The browser has taken the graphics device away, as it does when the driver was reset or updated.',
        'Reload the page: the model need not be fetched again; conversations are gone.');
    }
    const text = page.status();
    if (mirror.textContent !== text) mirror.textContent = text;
  }, 500);
}

start().catch((error) => say('Twostroke could not start.', String(error?.message ?? error)));
