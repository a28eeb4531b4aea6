// Lets llama.cpp read GGUF files: the logits of prompts, the ids of texts, greedy texts.
//
//   node llama_truth.js NPM_DIR JOBS_JSON RESULTS_JSON cpu|vulkan
//
// JOBS_JSON is a list of {"model", "lora", "prompts", "texts", "greedy"}: a file, the file of an
// adapter or nothing, lists of ids, texts, and {"text" | "ids", "count"} or nothing. RESULTS_JSON gets
// a list of {"logits", "ids", "bos", "eos", "greedy", "error", "file"}: for each prompt the logits of
// each of its positions; "file" has what Hugging Face's reader of GGUF finds.
'use strict';
const fs = require('fs');
const path = require('path');
const {pathToFileURL} = require('url');

const [npmDir, jobsFile, resultsFile, device] = process.argv.slice(2);
const onVulkan = device === 'vulkan';

function load(name, entry) {
  return import(pathToFileURL(path.join(npmDir, 'node_modules', name, entry)).href);
}

async function logitsOf(sequence, prompt, vocabulary) {
  await sequence.clearHistory();
  const found = await sequence.controlledEvaluate(prompt.map(id => [id, {generateNext: {
    logits: true, options: {temperature: 1, topK: vocabulary, topP: 1, minP: 0}}}]));
  return found.map(({next}) => {
    const logits = new Array(vocabulary).fill(null);
    for (const [id, logit] of next.logits) logits[id] = logit;
    return logits;
  });
}

async function greedyText(model, sequence, {text, ids, count}) {
  await sequence.clearHistory();
  const prompt = ids ?? model.tokenize(text, true);
  const answer = [];
  for await (const id of sequence.evaluate(prompt, {temperature: 0, yieldEogToken: true})) {
    answer.push(id);
    if (answer.length >= count) break;
  }
  return {ids: answer, text: model.detokenize(answer, false, prompt)};
}

async function run(llama, job) {
  const evaluates = (job.prompts ?? []).length > 0 || job.greedy != null;
  const model = await llama.loadModel({
    modelPath: job.model, vocabOnly: !evaluates, gpuLayers: onVulkan ? 'max' : 0, useMmap: false,
    checkTensors: true, ignoreMemorySafetyChecks: onVulkan});
  const result = {bos: model.tokens.bos, eos: model.tokens.eos,
    addsBos: model.tokens.shouldPrependBosToken, template: model.fileInfo.metadata.tokenizer
      ?.chat_template, special: [], ends: []};
  result.ids = (job.texts ?? []).map(text => [...model.tokenize(text, true)]);
  for (const id of job.ends ?? []) result.ends.push(model.isEogToken(id));
  if (evaluates) {
    const context = await model.createContext({
      contextSize: 320, batchSize: onVulkan ? 1 : 320, sequences: 1, threads: 1, flashAttention: false,
      swaFullCache: true, ignoreMemorySafetyChecks: onVulkan, experimentalKvCacheKeyType: 'F32', experimentalKvCacheValueType: 'F32',
      ...(job.lora ? {lora: {adapters: [{filePath: job.lora, scale: 1}]}} : {})});
    const sequence = context.getSequence();
    result.logits = [];
    const vocabulary = model.fileInfo.tensorInfo
      .find(tensor => tensor.name === 'token_embd.weight').dimensions[1];
    for (const prompt of job.prompts ?? []) {
      result.logits.push(await logitsOf(sequence, prompt, Number(vocabulary)));
    }
    if (job.greedy) result.greedy = await greedyText(model, sequence, job.greedy);
    await context.dispose();
  }
  await model.dispose();
  return result;
}

async function main() {
  const {getLlama, LlamaLogLevel} = await load('node-llama-cpp', 'dist/index.js');
  const {gguf} = await load('@huggingface/gguf', 'dist/index.mjs');
  const llama = await getLlama({gpu: onVulkan ? 'vulkan' : false, build: 'never', progressLogs: false,
    skipDownload: true, logLevel: process.env.GPUCTL_LLAMA_LOG ? LlamaLogLevel.debug : LlamaLogLevel.error});
  const results = [];
  for (const job of JSON.parse(fs.readFileSync(jobsFile, 'utf8'))) {
    const result = {};
    try {
      if (job.read) {
        const {metadata, tensorInfos} = await gguf(job.model, {allowLocalFile: true});
        result.file = {tensors: tensorInfos, metadata};
      }
      Object.assign(result, await run(llama, job));
    } catch (error) {
      result.error = String(error.stack ?? error);
    }
    results.push(result);
  }
  fs.writeFileSync(resultsFile, JSON.stringify(results, (_, value) =>
    typeof value === 'bigint' ? Number(value) : value));
  await llama.dispose();
}

main().catch(error => {
  console.log(String(error.stack));
  process.exitCode = 1;
});
