// Drives Chromium for a test: a JSON command on each line of stdin, its answer on a line of stdout.
//
//   node browser.mjs PLAYWRIGHT_DIR CHROMIUM
import { createInterface } from 'node:readline';
import { createRequire } from 'node:module';

const [folder, program] = process.argv.slice(2);
const { chromium } = createRequire(`${folder}/`)('playwright-core');
const browser = await chromium.launch({
  executablePath: program,
  // Root has no sandbox; nothing but the test's own page is opened.
  args: ['--disable-gpu', ...(process.getuid() === 0 ? ['--no-sandbox'] : [])],
});
let page;
let asked; // addresses of all requests
let said; // what went wrong in the page

// Not page.evaluate, which the page's own policy forbids: it forbids eval.
async function evaluate(expression) {
  const session = await page.context().newCDPSession(page);
  const { result, exceptionDetails } = await session.send('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true });
  await session.detach();
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
}

const commands = {
  async open({ url, width = 1280, height = 800, scheme = 'light', motion = 'no-preference' }) {
    if (page) await page.context().close();
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: motion });
    page = await context.newPage();
    asked = [];
    said = [];
    page.on('request', (request) => asked.push({ url: request.url(), referrer: request.headers().referer ?? null }));
    page.on('websocket', (socket) => asked.push({ url: socket.url(), referrer: null }));
    page.on('console', (line) => { if (['error', 'warning'].includes(line.type())) said.push(line.text()); });
    page.on('pageerror', (error) => said.push(String(error)));
    await page.goto(url);
  },
  press: ({ keys }) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve()),
  type: ({ text }) => page.keyboard.type(text),
  click: ({ selector }) => page.click(selector),
  hover: ({ selector }) => page.hover(selector),
  eval: ({ script }) => evaluate(script),
  async wait({ script, seconds }) {
    for (const end = performance.now() + seconds * 1000; performance.now() < end;) {
      if (await evaluate(`Boolean(${script})`).catch(() => false)) return true;
      await new Promise((resume) => { setTimeout(resume, 50); });
    }
    throw new Error('it did not become so');
  },
  reload: () => page.reload().then(() => true),
  size: ({ width, height }) => page.setViewportSize({ width, height }),
  scheme: ({ scheme }) => page.emulateMedia({ colorScheme: scheme }),
  shot: ({ path }) => page.screenshot({ path }).then(() => true),
  tree: async () => {
    const session = await page.context().newCDPSession(page);
    const { nodes } = await session.send('Accessibility.getFullAXTree');
    return nodes.filter((node) => !node.ignored).map((node) => ({ role: node.role?.value, name: node.name?.value ?? '' }));
  },
  requests: () => asked,
  errors: () => said,
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...options } = JSON.parse(line);
  let answer;
  try {
    answer = { value: (await commands[command](options)) ?? null };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
