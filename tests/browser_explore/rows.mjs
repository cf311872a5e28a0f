// Plays with the page of a run of points on the plane in Chromium: node rows.mjs ADDRESS MODULES SCREENSHOTS
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import assert from "node:assert/strict";

const [address, modules, screenshots] = process.argv.slice(2);
const require = createRequire(join(modules, "node_modules", "x"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const browser = await chromium.launch({
  executablePath: process.env.VAGES_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const complaints = [];
const context = await browser.newContext({ viewport: { width: 1280, height: 860 } });
const page = await context.newPage();
page.setDefaultTimeout(150_000);
page.on("console", (m) => ["error", "warning"].includes(m.type()) && complaints.push(m.text()));
page.on("pageerror", (error) => complaints.push(error.message));
page.on("response", (r) => r.status() >= 400 && complaints.push(`${r.status()} ${r.url()}`));
page.on("request", (r) => {
  const url = new URL(r.url());
  if (url.protocol !== "data:" && url.host !== new URL(address).host) complaints.push(`left for ${url}`);
});
await page.goto(address);

const tab = (name) => page.getByRole("tab", { name }).click();
const button = (name) => page.getByRole("button", { name, exact: true });
const told = page.locator(".q-tab-panel:visible [role=status]");
const ended = () => told.filter({ hasText: /draws, R̂ at most/ }).waitFor();
/** How many points a layer has. */
const points = async (kind) => ((await page.locator(`.plane path.${kind}`).getAttribute("d")) ?? "").split("M").length - 1;

async function accessible(what) {
  const found = await page.evaluate(async (source) => {
    if (!window.axe) (0, eval)(source);
    const { violations } = await window.axe.run();
    return violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => `${v.id}: ${v.nodes[0].html}`);
  }, axe);
  assert.deepEqual(found, [], what);
  if (screenshots) await page.screenshot({ path: join(screenshots, `${what}.png`), fullPage: true });
}

/** Tabs are as wide as their names, and the open panel has the name of its tab. */
async function tidyTabs() {
  for (const one of await page.getByRole("tab").all()) {
    const [tab, name] = [await one.boundingBox(), await one.locator(".q-tab__label").boundingBox()];
    assert.ok(tab.width < name.width + 20, "the tabs are spread over the line");
  }
  const open = page.locator("[role=tab][aria-selected=true]");
  const panel = page.getByRole("tabpanel", { name: await open.textContent(), exact: true });
  await panel.waitFor();
  assert.equal(await open.getAttribute("aria-controls"), await panel.getAttribute("id"));
}

// The keys: arrows move between tabs, Enter opens one.
await tidyTabs();
await page.getByRole("tab", { name: "Draw" }).focus();
await page.keyboard.press("ArrowRight");
await page.keyboard.press("Enter");
await page.getByRole("tabpanel", { name: "Complete", exact: true }).waitFor();
await tidyTabs();
await tab("Draw");

// The data and the density, then draws that grow in number while chains are shown.
await page.locator(".plane path.data").waitFor();
assert.equal(await page.locator(".plane image").count(), 1);
assert.ok((await points("data")) > 30);
const density = await page.locator(".plane image").getAttribute("href");
await page.getByRole("button", { name: "Log density" }).click();
while ((await page.locator(".plane image").getAttribute("href")) === density) await page.waitForTimeout(20);
await button("Draw").click();
await page.locator(".plane path.lines.chain").waitFor({ state: "attached" });
const early = await points("drawn");
await ended();
assert.ok((await points("drawn")) > early);
await accessible("rows-draw");

// A held coordinate: all draws lie on one line, which goes where the slider goes.
await tab("Complete");
await button("Complete").click();
await ended();
const across = async () => new Set((await page.locator(".plane path.drawn").getAttribute("d")).match(/M\d+/g));
const first = await across();
assert.equal(first.size, 1);
await page.getByRole("slider", { name: "Value of v[0]" }).locator("[tabindex='0']").focus();
for (let i = 0; i < 5; i++) await page.keyboard.press("ArrowRight");
await page.waitForTimeout(1500);
await ended();
const second = await across();
assert.equal(second.size, 1);
assert.notDeepEqual(second, first);
await accessible("rows-complete");
await button("Hold none").click();
await button("Complete").click();
await page.getByText("Hold at least one coordinate, and leave at least one to be drawn.").waitFor();

// A click chooses a row; a walk between two of them.
const caption = page.locator(".chosen");
const before = await caption.textContent();
const box = await page.locator(".plane").boundingBox();
await page.mouse.click(box.x + 0.5 * box.width, box.y + 0.7 * box.height);
while ((await caption.textContent()) === before) await page.waitForTimeout(20);
await tab("Walk");
await button("Walk").click();
await ended();
assert.equal(await page.locator(".table tbody tr:visible").count(), 9);
await accessible("rows-walk");

// On a telephone nothing is wider than the screen.
await page.setViewportSize({ width: 390, height: 844 });
await page.waitForTimeout(300);
assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390);
await tidyTabs();
if (screenshots) await page.screenshot({ path: join(screenshots, "rows-narrow.png"), fullPage: true });

assert.deepEqual(complaints, []);
await browser.close();
