// Plays with the page of `vages explore` in Chromium: node play.mjs ADDRESS MODULES PICTURE LARGE TEXT SCREENSHOTS
// Says "playing" when a chain runs that the caller may interrupt, and exits 0 when the server is gone.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import assert from "node:assert/strict";

const [address, modules, picture, large, text, screenshots] = process.argv.slice(2);
const require = createRequire(join(modules, "node_modules", "x"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const browser = await chromium.launch({
  executablePath: process.env.VAGES_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const complaints = [];
let leaving = false;

async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && !leaving && complaints.push(m.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("response", (r) => r.status() >= 400 && !leaving && complaints.push(`${r.status()} ${r.url()}`));
  page.on("request", (r) => {
    const url = new URL(r.url());
    if (url.protocol !== "data:" && url.host !== new URL(address).host) complaints.push(`left for ${url}`);
  });
  await page.goto(address);
  await page.getByText("a draw from p(v | h)").waitFor();
  return page;
}

async function accessible(page, what) {
  const found = await page.evaluate(async (source) => {
    if (!window.axe) (0, eval)(source);
    const { violations } = await window.axe.run();
    return violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => `${v.id}: ${v.nodes[0].html}`);
  }, axe);
  assert.deepEqual(found, [], what);
  if (screenshots) await page.screenshot({ path: join(screenshots, `${what}.png`), fullPage: true });
}

const source = (locator) => locator.getAttribute("src");
async function changed(locator, before) {
  const handle = await locator.elementHandle();
  await locator.page().waitForFunction(([e, b]) => e.getAttribute("src") !== b, [handle, before]);
}

/** The gray values of a picture, in rows. */
const pixels = (locator) =>
  locator.evaluate(async (image) => {
    await image.decode();
    const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const { data, width } = context.getImageData(0, 0, canvas.width, canvas.height);
    return [...Array(canvas.height).keys()].map((y) => [...Array(width).keys()].map((x) => data[4 * (y * width + x)]));
  });

const page = await open();
const tab = (name) => page.getByRole("tab", { name }).click();
const button = (name) => page.getByRole("button", { name, exact: true });
const chosen = page.getByAltText("The chosen image");
const drawn = page.getByAltText("An image drawn given these latents");
await accessible(page, "move");

/** The picture that h leads to, once its chain has ended and no other follows. */
async function settled() {
  for (let last = null, since = Date.now(); ; await page.waitForTimeout(50)) {
    const now = (await page.getByText("a draw from p(v | h)").count()) ? await source(drawn) : null;
    if (now !== last) [last, since] = [now, Date.now()];
    else if (now !== null && Date.now() - since > 700) return now;
    assert.ok(Date.now() - since < 30_000);
  }
}

// Another image.
const first_drawn = await settled();
let before = await source(chosen);
await page.getByRole("button", { name: "Choose test image" }).nth(3).click();
await changed(chosen, before);
const start = await settled();
assert.notEqual(start, first_drawn);

// Sliders, by keyboard and by mouse; and back again, to the same picture, for the noise is the same.
const slider = page.getByRole("slider", { name: "Direction 1" });
await slider.locator("[tabindex='0']").focus();
for (const value of ["+0.1", "+0.2", "+0.3"]) {
  await page.keyboard.press("ArrowRight");
  await page.getByText(`${value} sd`).waitFor();
}
const box = await page.getByRole("slider", { name: "Direction 2" }).boundingBox();
await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
await page.mouse.down();
await page.mouse.move(box.x + box.width - 1, box.y + box.height / 2, { steps: 8 });
await page.mouse.up();
await page.getByText("+4.0 sd").waitFor();
const moved = await settled();
assert.notEqual(moved, start);
const coordinate = page.getByRole("slider", { name: "Value of the coordinate" });
const track = await coordinate.boundingBox();
await page.mouse.click(track.x + 2, track.y + track.height / 2);
await page.waitForFunction(
  (e) => Number(e.getAttribute("aria-valuenow")) < 0.9 * Number(e.getAttribute("aria-valuemin")),
  await coordinate.elementHandle(),
);
assert.notEqual(await settled(), moved);
await button("Reset").click();
await page.getByText("+4.0 sd").waitFor({ state: "detached" });
assert.equal(await settled(), start);
await button("Other noise").click();
assert.notEqual(await settled(), start);
const single = page.locator(".single .value");
const value_of_first = await single.textContent();
await page.getByRole("combobox", { name: "Coordinate" }).click();
await page.getByRole("option", { name: "h2" }).click();
while ((await single.textContent()) === value_of_first) await page.waitForTimeout(20);

// Other images.
const thumbnails = page.getByRole("button", { name: "Choose test image" });
const names = () => thumbnails.evaluateAll((all) => all.map((e) => e.getAttribute("aria-label")).join());
const shelf = await names();
await button("Others").click();
while ((await names()) === shelf) await page.waitForTimeout(20);
assert.equal(await thumbnails.count(), 20);

// A chain, seen on its way; a shorter one; and one that is stopped.
await tab("Watch");
const first = page.getByAltText("Chain 1");
await first.evaluate((image) => {
  window.frames_seen = new Set();
  new MutationObserver(() => window.frames_seen.add(image.getAttribute("src"))).observe(image, { attributes: true });
});
await button("Start").click();
await page.getByText("Done after 2,700 steps").waitFor();
assert.ok((await page.evaluate(() => window.frames_seen.size)) >= 10);
await accessible(page, "watch");
await button("540 steps").click();
await button("Start").click();
await page.getByText("Done after 540 steps").waitFor();
await button("2,700 steps").click();
await page.getByText("h is drawn with the image").click();
await button("Start").click();
await page.getByText(/^Step \d/).waitFor();
await button("Stop").click();
await page.getByText(/Stopped after [\d,]+ steps/).waitFor();

// A painted mask: what is not painted stays, what is painted is drawn.
await tab("Inpaint");
await button("Complete").click();
await page.getByText("Hide a part of the image first").waitFor();
const canvas = page.locator(".canvas img");
await canvas.waitFor();
const at = await canvas.boundingBox();
const cell = at.width / 8;
await page.mouse.move(at.x + 1.5 * cell, at.y + 2.5 * cell);
await page.mouse.down();
await page.mouse.move(at.x + 5.5 * cell, at.y + 2.5 * cell, { steps: 3 });
await page.mouse.up();
const veil = page.locator(".veil");
await page.waitForFunction(() => document.querySelector(".veil")?.getAttribute("d") === "M1 2h5v1h-5z");
await button("Complete").click();
await page.locator(".q-tab-panel:visible").getByText("Done after 2,700 steps").waitFor();
const [whole, completed] = [await pixels(chosen), await pixels(page.getByAltText("Completion 1"))];
let different = 0;
for (let y = 0; y < 8; y++)
  for (let x = 0; x < 8; x++)
    if (y === 2 && x >= 1 && x < 6) different += whole[y][x] !== completed[y][x];
    else assert.equal(completed[y][x], whole[y][x], `pixel ${x}, ${y}`);
assert.ok(different > 0);
await button("Center").focus();
await page.keyboard.press("Enter");
await page.waitForFunction(() => document.querySelector(".veil")?.getAttribute("d").startsWith("M2 2h4v1"));
await accessible(page, "inpaint");
await page.getByText("Uncover").click();
await page.mouse.click(at.x + 2.5 * cell, at.y + 2.5 * cell);
await page.waitForFunction(() => document.querySelector(".veil")?.getAttribute("d").startsWith("M3 2h3v1"));
for (let i = 0; i < 1500; i++) await page.mouse.move(at.x + (i % 200), at.y + ((7 * i) % 200)); // as fast as it goes
await button("Clear").click();
await veil.waitFor({ state: "detached" });

// One's own pictures, and what is none.
async function upload(file) {
  const chooser = page.waitForEvent("filechooser");
  await button("Upload").click();
  await (await chooser).setFiles(file);
}
before = await source(chosen);
await upload(picture);
await page.locator("figcaption").getByText("picture.png").waitFor();
await changed(chosen, before);
before = await source(chosen);
await upload(large);
await page.getByText("of at most 5 MB").waitFor();
await upload(text);
await page.getByText(/text\.png: expected/).waitFor();
assert.equal(await source(chosen), before);

// A telephone, in the dark.
const small = await open({ viewport: { width: 390, height: 844 }, colorScheme: "dark" });
assert.ok((await small.evaluate(() => document.documentElement.scrollWidth)) <= 390);
await accessible(small, "telephone");
await small.getByRole("tab", { name: "Watch" }).click();
await small.getByText("Snapshots of the first chain").waitFor();
await small.waitForTimeout(500); // tabs slide
await accessible(small, "telephone-watch");
await small.context().close();

assert.deepEqual(complaints, []);
assert.equal(await page.getByText("Connection lost").isVisible(), false);
await tab("Watch");
await button("Start").click();
await page.getByText(/^Step \d/).waitFor();
leaving = true;
console.log("playing");
await page.getByText("Connection lost").waitFor();
await page.getByText(/^Step \d/).waitFor(); // the chain had not ended by itself
await browser.close();
