// Goes through the page of `vages explore` by the key Tab: node focus.mjs ADDRESS MODULES SCREENSHOTS
// Each element that has the focus is outlined on all sides, with a contrast of 3 to the page.
import { createRequire } from "node:module";
import { join } from "node:path";
import assert from "node:assert/strict";

const [address, modules, screenshots] = process.argv.slice(2);
const { chromium } = createRequire(join(modules, "node_modules", "x"))("playwright-core");
const browser = await chromium.launch({
  executablePath: process.env.VAGES_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const blank = await (await browser.newContext()).newPage(); // decodes screenshots

/** The colors at points of a screenshot. */
const colors = (png, points) =>
  blank.evaluate(
    async ([data, points]) => {
      const image = new Image();
      image.src = `data:image/png;base64,${data}`;
      await image.decode();
      const context = new OffscreenCanvas(image.naturalWidth, image.naturalHeight).getContext("2d");
      context.drawImage(image, 0, 0);
      return points.map(([x, y]) => [...context.getImageData(Math.round(x), Math.round(y), 1, 1).data.slice(0, 3)]);
    },
    [png.toString("base64"), points],
  );

const luminance = (color) => {
  const [r, g, b] = color.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (one, other) => {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};

/** The outline that stands for the focus, and a name of the element; null if the page has no focus. */
const focused = (page) =>
  page.evaluate(() => {
    const option = document.querySelector(".q-menu .q-manual-focusable--focused");
    const element = option ?? document.activeElement;
    if (element === document.body) return null;
    const shown = element.closest(".q-field")?.querySelector(".q-field__control") ?? element;
    const { left, right, top, bottom } = shown.getBoundingClientRect();
    const { outlineStyle, outlineWidth, outlineOffset, outlineColor } = getComputedStyle(shown);
    const label = element.ariaLabel ?? element.closest("[aria-label]")?.ariaLabel ?? ""; // of a slider
    return {
      name: `${element.tagName} ${element.className} ${element.textContent || label}`,
      seen: outlineStyle !== "none" && element.matches(":focus-visible, .q-manual-focusable--focused"),
      box: [left, right, top, bottom],
      width: parseFloat(outlineWidth),
      offset: parseFloat(outlineOffset),
      color: outlineColor.match(/\d+/g).slice(0, 3).map(Number),
    };
  });

async function outlined(page) {
  const { name, seen, box, width, offset, color } = await focused(page);
  assert.ok(seen && width >= 2, `no outline: ${name}`);
  const [left, right, top, bottom] = box;
  const [x, y] = [(left + right) / 2, (top + bottom) / 2];
  const sides = (d) => [[left - d - 0.5, y], [right + d - 0.5, y], [x, top - d - 0.5], [x, bottom + d - 0.5]];
  const [paper, ...found] = await colors(await page.screenshot(), [[2, 2], ...sides(offset + width / 2)]);
  for (let i = 0; i < 4; i++) {
    const told = `${["left", "right", "top", "bottom"][i]} of ${name}: ${found[i]} on ${paper}`;
    assert.ok(found[i].every((c, k) => Math.abs(c - color[k]) <= 40), `the outline is cut off, ${told}`);
    assert.ok(contrast(found[i], paper) >= 3, `low contrast, ${told}`);
  }
  return name;
}

const kinds = new Set();
for (const colorScheme of ["light", "dark"]) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 1400 }, colorScheme, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  await page.goto(address);
  const names = new Set();
  for (const tab of await page.getByRole("tab").all()) {
    await tab.click();
    await page.waitForTimeout(1500); // tabs slide
    await page.evaluate(() => document.activeElement.blur());
    await page.mouse.click(2, 2); // so that Tab begins at the top of the page
    for (let i = 0; i < 100; i++) {
      await page.keyboard.press("Tab");
      await page.waitForTimeout(60);
      const now = await focused(page);
      if (now === null) break;
      if (names.has(now.name)) continue; // seen beside another tab
      names.add(await outlined(page));
      kinds.add(now.name.match(/q-(btn|tab|slider|select|radio|checkbox)|thumbnail/)?.[0]);
    }
  }
  const select = page.getByRole("combobox").and(page.locator(":visible")).first();
  await page.getByRole("tab").first().click();
  await page.waitForTimeout(1500);
  if (await select.count()) {
    await select.focus();
    await page.keyboard.press("ArrowDown");
    await page.waitForTimeout(600); // the list opens
    await page.keyboard.press("ArrowDown");
    await page.waitForTimeout(300);
    assert.match(await outlined(page), /q-item/);
    if (screenshots) await page.screenshot({ path: join(screenshots, `focus-list-${colorScheme}.png`) });
    await page.keyboard.press("Escape");
  }
  await context.close();
}
console.log([...kinds].join());
await browser.close();
