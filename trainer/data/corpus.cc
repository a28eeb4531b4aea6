#include "trainer/data/corpus.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>
#include <system_error>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/philox.h"
#include "trainer/base/sha256.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kSniffBytes = 8192;
constexpr int64_t kDocumentsToSplitBy = 20;

bool Contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool Wanted(const std::string& name, const std::vector<std::string>& extensions) {
  if (extensions.empty()) return true;
  return std::any_of(extensions.begin(), extensions.end(), [&](const std::string& extension) {
    return name.size() >= extension.size() &&
           name.compare(name.size() - extension.size(), extension.size(), extension) == 0;
  });
}

// Collects depth first, with sorted names, so that the order is the same everywhere. Does not
// follow links to directories, which could form a loop.
void CollectFiles(const std::string& path, const DataConfig& config,
                  std::vector<std::string>* files) {
  for (const std::string& name : ListDirectory(path)) {
    if (name[0] == '.' || Contains(config.exclude, name)) continue;
    const std::string child = path + "/" + name;
    if (IsDirectory(child)) {
      if (!IsSymlink(child)) CollectFiles(child, config, files);
    } else if (IsFile(child) && Wanted(name, config.extensions)) {
      files->push_back(child);
    }
  }
}

std::vector<std::string> FindFiles(const DataConfig& config) {
  if (config.paths.empty()) {
    throw ConfigError("find data: data.paths is empty", "name a file or directory with --data");
  }
  std::vector<std::string> files;
  for (const std::string& path : config.paths) {
    if (IsDirectory(path)) {
      CollectFiles(path, config, &files);
    } else if (Exists(path)) {
      files.push_back(path);
    } else {
      throw DataError("find data " + path + ": no such file or directory");
    }
  }
  return files;
}

bool LooksBinary(const std::string& bytes) {
  return std::string_view(bytes).substr(0, kSniffBytes).find('\0') != std::string_view::npos;
}

void Append(const std::string& document, TokenStream* stream) {
  stream->push_back(static_cast<uint16_t>(kBos));
  for (const char c : document) stream->push_back(static_cast<unsigned char>(c));
}

// Holds out documents, in a seeded order, until their bytes reach the wanted share. Skips a
// document that would exceed it by more than a quarter.
std::vector<bool> ChooseHeldOut(const std::vector<std::string>& documents, double fraction,
                                int64_t seed) {
  std::vector<size_t> order(documents.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto rank = [&](size_t i) {
    return Random64(static_cast<uint64_t>(seed), RandomStream::kSplit, 0, i);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::make_pair(rank(a), a) < std::make_pair(rank(b), b);
  });
  double total = 0;
  for (const std::string& document : documents) total += static_cast<double>(document.size());
  const double target = total * fraction;
  std::vector<bool> held(documents.size(), false);
  double taken = 0;
  for (const size_t i : order) {
    if (taken >= target) break;
    if (taken + static_cast<double>(documents[i].size()) > 1.25 * target) continue;
    held[i] = true;
    taken += static_cast<double>(documents[i].size());
  }
  if (taken < 0.5 * target) {
    throw DataError("split data: no choice of whole documents comes near the held-out share",
                    "set data.split=tail");
  }
  return held;
}

void SplitTail(const std::vector<std::string>& documents, double fraction, Corpus* corpus) {
  TokenStream all;
  for (const std::string& document : documents) Append(document, &all);
  const auto kept = static_cast<int64_t>(static_cast<double>(all.size()) * (1.0 - fraction));
  corpus->train.assign(all.begin(), all.begin() + kept);
  corpus->held_out.assign(all.begin() + kept, all.end());
}

std::string DigestOf(const Corpus& corpus) {
  Sha256 digest;
  for (const TokenStream* stream : {&corpus.train, &corpus.held_out}) {
    const auto size = static_cast<uint64_t>(stream->size());
    digest.Update(&size, sizeof(size));
    digest.Update(stream->data(), stream->size() * sizeof(uint16_t));
  }
  return digest.Hex();
}

}  // namespace

TokenStream Encode(const std::string& text) {
  TokenStream tokens;
  Append(text, &tokens);
  return tokens;
}

Corpus MakeCorpus(const std::vector<std::string>& given, const DataConfig& config, int64_t seed) {
  Corpus corpus;
  std::vector<std::string> documents;
  std::set<std::string> seen;  // digests; a copy in the held-out part would be no test
  for (const std::string& document : given) {
    if (document.empty()) continue;
    if (LooksBinary(document)) {
      ++corpus.not_text;
    } else if (!seen.insert(Sha256Hex(document)).second) {
      ++corpus.duplicates;
    } else {
      documents.push_back(document);
    }
  }
  corpus.documents = static_cast<int64_t>(documents.size());
  if (documents.empty()) throw DataError("read data: nothing to train on was found");
  const bool by_document = config.split == "document" ||
                           (config.split == "auto" && corpus.documents >= kDocumentsToSplitBy);
  corpus.split = by_document ? "document" : "tail";
  if (by_document) {
    const std::vector<bool> held = ChooseHeldOut(documents, config.held_out_fraction, seed);
    for (size_t i = 0; i < documents.size(); ++i) {
      Append(documents[i], held[i] ? &corpus.held_out : &corpus.train);
    }
  } else {
    SplitTail(documents, config.held_out_fraction, &corpus);
  }
  corpus.digest = DigestOf(corpus);
  return corpus;
}

Corpus LoadCorpus(const DataConfig& config, int64_t seed) {
  std::vector<std::string> documents;
  int64_t total = 0;
  for (const std::string& file : FindFiles(config)) {
    const auto size = static_cast<int64_t>(FileSize(file));
    if (total + size > config.max_bytes) continue;
    documents.push_back(ReadWholeFile(file, static_cast<uint64_t>(config.max_bytes)));
    total += size;
  }
  return MakeCorpus(documents, config, seed);
}

}  // namespace gpuctl::trainer
