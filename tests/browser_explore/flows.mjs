// The page of a noise-conditional run, whose draws are by Heun's method: node flows.mjs ADDRESS MODULES SCREENSHOTS NAME
// Draws on each panel; nowhere does the page speak of chains.
import { createRequire } from "node:module";
import { join } from "node:path";
import assert from "node:assert/strict";

const [address, modules, screenshots, name] = process.argv.slice(2);
const { chromium } = createRequire(join(modules, "node_modules", "x"))("playwright-core");
const browser = await chromium.launch({
  executablePath: process.env.VAGES_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const page = await (await browser.newContext({ viewport: { width: 1280, height: 860 } })).newPage();
page.setDefaultTimeout(60_000);
const complaints = [];
page.on("console", (m) => ["error", "warning"].includes(m.type()) && complaints.push(m.text()));
page.on("pageerror", (error) => complaints.push(error.message));
await page.goto(address);

/** All that a page says to its readers, and to those of its labels. */
const said = () =>
  page.evaluate(() => {
    const labels = [...document.querySelectorAll("*")].flatMap((e) => [e.ariaLabel, e.title, e.alt]);
    return [document.body.innerText, ...labels].filter(Boolean).join("\n");
  });

const visible = page.locator(".q-tab-panel:visible");
for (const tab of await page.getByRole("tab").all()) {
  await tab.click();
  await page.waitForTimeout(800); // tabs slide
  const hide = visible.getByRole("button", { name: "Center", exact: true });
  if (await hide.count()) await hide.click();
  const start = visible.getByRole("button", { name: /^(Start|Draw|Complete|Walk)$/ });
  if (await start.count()) {
    await start.click();
    await visible.getByText(/^(Done after 18 steps|[\d,]+ independent draws)$/).waitFor();
  } else await visible.getByText("a draw with this h at all noise levels").waitFor();
  assert.doesNotMatch(await said(), /chain/i);
  if (screenshots) await page.screenshot({ path: join(screenshots, `${name}-${await tab.textContent()}.png`), fullPage: true });
}
assert.deepEqual(complaints, []);
await browser.close();
