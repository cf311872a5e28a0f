// A page of `vages report` in a real browser, without a network: node check_report.js PAGE [FOLDER FOR SCREENSHOTS]
// NODE_PATH names the folder of playwright-core and axe-core, VAGES_CHROMIUM the browser.
// Prints one JSON object of what was seen.
"use strict";

const fs = require("fs");
const { pathToFileURL } = require("url");
const { chromium } = require("playwright-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const [page_file, shots] = process.argv.slice(2);
const address = pathToFileURL(page_file).href;

async function opened(browser, seen, options) {
  const context = await browser.newContext({ offline: true, ...options });
  const page = await context.newPage();
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && seen.console.push(message.text()));
  page.on("pageerror", (error) => seen.console.push(String(error)));
  page.on("dialog", (dialog) => { seen.dialogs.push(dialog.message()); return dialog.dismiss(); });
  page.on("request", (request) => {
    const url = request.url();
    if (url !== address && !url.startsWith("data:")) seen.requests.push(url);
  });
  await page.goto(address);
  return page;
}

// the pixels of an element, as they are on the screen
const looks = async (element) => (await element.screenshot()).toString("base64");

async function curves(page) {
  const surface = page.locator(".curve .surface").first();
  if (!(await surface.count())) return null;
  const figure = page.locator(".curve").first();
  await surface.scrollIntoViewIfNeeded();
  const box = await surface.boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  const hovered = await figure.locator(".tip").innerText();
  await page.mouse.move(1, 1);
  const gone = (await figure.locator(".tip").count()) === 0;
  await surface.focus();
  const view = () => figure.locator("svg").first().getAttribute("viewBox");
  const value = () => surface.getAttribute("aria-valuetext");
  const whole = await view();
  await page.keyboard.press("Home");
  const first = await value();
  await page.keyboard.press("ArrowRight");
  const second = await value();
  await page.keyboard.press("+");
  const zoomed = await view();
  await page.keyboard.press("End");
  const panned = await view();
  const last = await value();
  await page.keyboard.press("0");
  const back = await view();
  await page.mouse.move(box.x + box.width * 0.2, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.4, box.y + 20, { steps: 4 });
  await page.mouse.up();
  const dragged = await view();
  if (dragged !== whole) await figure.locator("[data-zoom=all]").click();
  return { hovered, gone, first, second, last, whole, zoomed, panned, back, dragged, after: await view() };
}

async function walks(page) {
  const root = page.locator(".walk").first();
  if (!(await root.count())) return null;
  const stage = root.locator(".stage"), latents = root.locator("[data-axis=h]"), time = root.locator("[data-axis=t]");
  await stage.scrollIntoViewIfNeeded();
  const before = await looks(stage), label = await stage.getAttribute("aria-label");
  await latents.focus();
  await page.keyboard.press("End");
  const moved = (await looks(stage)) !== before, moved_label = await stage.getAttribute("aria-label");
  const play = root.locator("[data-play=t]");
  await play.click();
  const pressed = await play.getAttribute("aria-pressed"), playing = new Set();
  for (let i = 0; i < 60 && (await play.getAttribute("aria-pressed")) === "true"; i++) {
    playing.add(await time.inputValue());
    await page.waitForTimeout(60);
  }
  const ended = [await play.getAttribute("aria-pressed"), await time.inputValue(), await time.getAttribute("max")];
  const sheet = await root.locator(".sheet").boundingBox();
  await page.mouse.click(sheet.x + 2, sheet.y + 2);
  return { label, moved, moved_label, pressed, frames: playing.size, ended, clicked: await stage.getAttribute("aria-label") };
}

/** The space between each table or picture and the picture that follows it, in pixels. */
const gaps = (page) =>
  page.locator(".wide + figure, figure + figure").evaluateAll((all) =>
    all
      .filter((one) => one.offsetParent !== null && !one.parentElement.matches(".curves, .strip, .made"))
      .map((one) => one.getBoundingClientRect().top - one.previousElementSibling.getBoundingClientRect().bottom),
  );

async function accessibility(page) {
  await page.evaluate(() => document.querySelectorAll("details").forEach((one) => (one.open = true)));
  await page.evaluate(axe); // the page's policy would refuse a script by its address
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations", "passes"] }));
  // As Lighthouse does, the share of rules that pass, by their weight. axe does not tell the impact of a rule that
  // passes; each is counted as moderate, so that a violation weighs more here than there.
  const weights = { critical: 10, serious: 7, moderate: 3, minor: 1 };
  const weight = (rule) => weights[rule.impact || (rule.nodes[0] && rule.nodes[0].impact)] || 3;
  const sum = (rules) => rules.reduce((total, rule) => total + weight(rule), 0);
  return {
    violations: found.violations.map(({ id, impact, nodes }) => ({ id, impact, targets: nodes.slice(0, 3).map((n) => n.html.slice(0, 200)) })),
    score: (100 * sum(found.passes)) / (sum(found.passes) + sum(found.violations)),
  };
}

const overflow = (page) => page.evaluate(() => [document.documentElement.scrollWidth, document.body.scrollWidth]);
const shot = (page, name) => shots && page.screenshot({ path: `${shots}/${name}.png`, fullPage: true });

(async () => {
  const browser = await chromium.launch({ executablePath: process.env.VAGES_CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox"] });
  const seen = { console: [], requests: [], dialogs: [] };
  const desktop = { viewport: { width: 1200, height: 900 } };
  let page = await opened(browser, seen, desktop);
  await shot(page, "desktop");
  seen.gaps = await gaps(page);
  seen.curve = await curves(page);
  seen.walk = await walks(page);
  seen.anchor = await page.evaluate(async () => {
    const link = [...document.querySelectorAll("nav a")].pop();
    link.click();
    const target = document.querySelector(link.getAttribute("href"));
    return !target.querySelector("details") || target.querySelector("details").open;
  });
  seen.light = await accessibility(page);
  seen.injected = await page.evaluate(() => window.injected === true);
  page = await opened(browser, seen, { ...desktop, colorScheme: "dark", reducedMotion: "reduce" });
  await shot(page, "dark");
  seen.dark = await accessibility(page);
  page = await opened(browser, seen, { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true });
  await shot(page, "phone");
  seen.phone = { ...(await accessibility(page)), overflow: await overflow(page) }; // with all tables open
  page = await opened(browser, seen, { viewport: { width: 700, height: 900 } });
  await page.emulateMedia({ media: "print" });
  await shot(page, "print");
  seen.print = {
    overflow: await overflow(page),
    controls: await page.locator("nav, .zoom, .player").evaluateAll((all) => all.filter((one) => one.offsetParent !== null).length),
    pdf: (await page.pdf({ format: "A4" })).length,
  };
  page = await opened(browser, seen, { ...desktop, javaScriptEnabled: false });
  seen.plain = { curves: await page.locator(".curve path.line").count(), buttons: await page.locator("button:visible").count() };
  await browser.close();
  console.log(JSON.stringify(seen));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
