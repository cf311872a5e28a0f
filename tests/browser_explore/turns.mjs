// Three pages of `vages explore`, whose chains are long: node turns.mjs ADDRESS MODULES
import { createRequire } from "node:module";
import { join } from "node:path";
import assert from "node:assert/strict";

const [address, modules] = process.argv.slice(2);
const { chromium } = createRequire(join(modules, "node_modules", "x"))("playwright-core");
const browser = await chromium.launch({
  executablePath: process.env.VAGES_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const context = await browser.newContext();

async function open() {
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  await page.goto(address);
  return page;
}
const busy = (page) => page.getByText("2 other pages are drawing; try again when one is done");
const STEPS = 27_000;
const running = (page) => page.getByText(/^step [\d,]+ of 27,000$/);
/** The last step that a page has shown of a chain that has not ended. */
const step = async (page) => Number((await running(page).textContent()).match(/[\d,]+/)[0].replaceAll(",", ""));

// Each page draws an image when it opens: two may, the third is told why not.
const [first, second] = [await open(), await open()];
await running(first).waitFor();
await running(second).waitFor();
const third = await open();
await busy(third).waitFor();
assert.equal(await running(third).count(), 0);

// The chain of a closed page makes room, and so would one that has ended.
const lead = (await step(first)) - (await step(second));
await first.close();
let tries = 0;
do {
  assert.ok(++tries < 20, "the chain of a closed page still runs");
  await third.getByRole("button", { name: "Other noise" }).click();
  await third.waitForTimeout(500);
} while (!(await running(third).count()));

// Neither chain can have ended by itself: both were as fast, and the second is not far, and still runs.
const reached = await step(second);
assert.ok(Math.max(reached, reached + lead) < STEPS / 2, `at step ${reached}, ${lead} behind that of the closed page`);
for (let i = 0; (await step(second)) === reached; i++) {
  assert.ok(i < 100, "the chain of the second page was stopped");
  await second.waitForTimeout(100);
}
await browser.close();
