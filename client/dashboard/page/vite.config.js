// Makes one file of the page: index.html with its script and style in it, the licences of what they
// are made of, and the hashes by which the browser knows them (page.hashes: scripts, styles).
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { defineConfig } from 'vite';

const hashOf = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

function licences() {
  const { dependencies } = JSON.parse(readFileSync('package.json', 'utf8'));
  return Object.keys(dependencies).map((name) => {
    const { version } = JSON.parse(readFileSync(`node_modules/${name}/package.json`, 'utf8'));
    const text = readFileSync(`node_modules/${name}/LICENSE`, 'utf8').replaceAll('--', '- -');
    return `${name} ${version}\n\n${text.trim()}`;
  }).join('\n\n');
}

const oneFile = {
  name: 'one-file',
  enforce: 'post',
  generateBundle(options, bundle) {
    const files = Object.values(bundle);
    const script = files.filter((file) => file.type === 'chunk').map((file) => file.code).join('\n');
    const style = files.filter((file) => file.fileName.endsWith('.css')).map((file) => file.source)
      .join('\n');
    if (/<\/script/i.test(script) || /<\/style/i.test(style)) this.error('a tag ends too early');
    const html = bundle['index.html'].source
      .replace(/\s*<script[^>]*><\/script>/g, '')
      .replace(/\s*<link rel="stylesheet"[^>]*>/g, '')
      .replace('</head>', () => `<style>${style}</style>\n</head>`)
      .replace('</body>', () => `<script type="module">${script}</script>\n</body>`);
    for (const name of Object.keys(bundle)) delete bundle[name];
    const page = `${html}\n<!--\nThis page has in it:\n\n${licences()}\n-->\n`;
    this.emitFile({ type: 'asset', fileName: 'page.html.gz', source: gzipSync(page, { level: 9 }) });
    this.emitFile({ type: 'asset', fileName: 'page.hashes',
      source: `${hashOf(script)}\n${hashOf(style)}\n` });
  },
};

export default defineConfig({
  plugins: [oneFile],
  build: { target: 'es2020', modulePreload: false, assetsInlineLimit: 0, cssCodeSplit: false },
});
