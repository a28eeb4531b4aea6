#include "trainer/tokenizer/post_processor.h"

#include <string>

#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/part_depth.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kMaxAround = 1000;

void Wrap(const Surroundings& outer, Surroundings* all) {
  all->before.insert(all->before.begin(), outer.before.begin(), outer.before.end());
  all->behind.insert(all->behind.end(), outer.behind.begin(), outer.behind.end());
}

void AddTemplate(const JsonAt& json, Surroundings* all) {
  const JsonAt single = json.At("single");
  Surroundings outer;
  bool text = false;
  for (size_t i = 0; i < single.Size(); ++i) {
    const JsonAt part = single.At(i);
    if (const auto sequence = part.Find("Sequence")) {
      if (text || sequence->At("id").Text() != "A") part.Refuse("the text must be there once");
      text = true;
      continue;
    }
    const std::string name = part.At("SpecialToken").At("id").Text();
    const JsonAt ids = json.At("special_tokens").At(name).At("ids");
    for (size_t k = 0; k < ids.Size(); ++k) {
      (text ? outer.behind : outer.before)
          .push_back(static_cast<int32_t>(ids.At(k).Number(Bpe::kMaxId)));
    }
  }
  if (!text) single.Refuse("the text is missing");
  Wrap(outer, all);
}

void AddProcessor(const JsonAt& json, int depth, Surroundings* all) {
  if (depth > kMaxPartDepth) json.Refuse("is nested too deeply");
  const std::string type = json.At("type").Text();
  if (type == "Sequence") {
    const JsonAt list = json.At("processors");
    for (size_t i = 0; i < list.Size(); ++i) AddProcessor(list.At(i), depth + 1, all);
  } else if (type == "TemplateProcessing") {
    AddTemplate(json, all);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto id = [&](const char* key) {
      return static_cast<int32_t>(json.At(key).At(1).Number(Bpe::kMaxId));
    };
    Wrap({{id("cls")}, {id("sep")}}, all);
  } else if (type != "ByteLevel") {  // that one changes only offsets
    json.Refuse("the post-processor " + type + " is not supported");
  }
  if (all->before.size() + all->behind.size() > kMaxAround) json.Refuse("adds too many tokens");
}

}  // namespace

Surroundings ReadPostProcessor(const std::optional<JsonAt>& json) {
  Surroundings all;
  if (json) AddProcessor(*json, 0, &all);
  return all;
}

}  // namespace gpuctl::trainer
