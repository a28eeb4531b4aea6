#include "trainer/interchange/documents.h"

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/json_object.h"

namespace gpuctl::trainer {

using nlohmann::json;

json ParseDocument(const std::string& text, const std::string& what) {
  return ParseJsonObject(text, "read " + what);
}

json ReadDocument(const std::string& path, uint64_t most) {
  if (!IsFile(path)) throw DataError("read " + path + ": no such file");
  return ParseDocument(ReadWholeFile(path, most), path);
}

}  // namespace gpuctl::trainer
