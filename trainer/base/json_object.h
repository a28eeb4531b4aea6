// Parses JSON that others wrote.

#ifndef TRAINER_BASE_JSON_OBJECT_H_
#define TRAINER_BASE_JSON_OBJECT_H_

#include <nlohmann/json.hpp>
#include <string>

namespace gpuctl::trainer {

// Returns the object that `text` is. Throws Error(kBadData) that begins with `doing` when it is not
// valid JSON, no object, nested more than `deepest` levels deep, or when an object in it has a key
// twice, of which nlohmann would silently keep the last. With `comments`, // and /* */ are skipped.
nlohmann::json ParseJsonObject(const std::string& text, const std::string& doing,
                               size_t deepest = 64, bool comments = false);

}  // namespace gpuctl::trainer

#endif  // TRAINER_BASE_JSON_OBJECT_H_
