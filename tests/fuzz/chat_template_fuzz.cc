// Fuzzes {"template": …, "config": tokenizer_config.json, "row": …}: the template and the row are
// refused, or give a text, with what is learned of it in order.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/json_at.h"
#include "trainer/base/json_object.h"
#include "trainer/chat/chat_template.h"
#include "trainer/prepare/row.h"

namespace {

void TryOut(const std::string& text) {
  const auto json = gpuctl::trainer::ParseJsonObject(text, "read input", 200);
  const gpuctl::trainer::JsonAt root(json, "");
  const gpuctl::trainer::ChatTemplate chat("input", root.At("template").Text(),
                                           root.At("config").value(), 0);
  const auto row = gpuctl::trainer::ParseRow(root.At("row").value().dump());
  if (!row.is_chat) return;
  for (const auto turns : {gpuctl::trainer::Turns::kAll, gpuctl::trainer::Turns::kLast}) {
    try {
      const auto masked = chat.RenderMasked(row.conversation, turns, row.first_learned);
      size_t at = 0;
      for (const auto& [begin, end] : masked.learned) {
        if (begin < at || end < begin || end > masked.text.size()) abort();
        at = end;
      }
    } catch (const gpuctl::trainer::Error& error) {
      if (error.code() != gpuctl::trainer::ExitCode::kBadData) abort();
    }
  }
  chat.Render(row.conversation, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    TryOut(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const gpuctl::trainer::Error& error) {
    if (error.code() != gpuctl::trainer::ExitCode::kBadData) abort();
  }
  return 0;
}
