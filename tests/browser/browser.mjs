// A real Chromium with WebGPU on the CPU, through SwiftShader.
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

// All three of the last are needed together, or the first picture of a canvas takes the whole WebGPU context with it.
const flags = ["--no-sandbox", "--enable-unsafe-webgpu", "--enable-features=Vulkan", "--use-vulkan=swiftshader", "--use-angle=swiftshader"];

export function browser_path() {
  const names = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome-stable", "/usr/bin/google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome", "/Applications/Chromium.app/Contents/MacOS/Chromium"];
  const found = names.find(name => name && existsSync(name));
  if (!found) { console.error("no Chromium or Chrome found: install one, or set CHROMIUM to its path"); process.exit(1); }
  return found;
}

export const launch = (args = flags) => chromium.launch({ executablePath: browser_path(), headless: true, args });

// With what is stored kept in `folder`.
export const launch_kept = (folder, options) =>
  chromium.launchPersistentContext(folder, { executablePath: browser_path(), headless: true, args: flags, ...options });
