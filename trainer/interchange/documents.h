// Reads JSON documents that others wrote.

#ifndef TRAINER_INTERCHANGE_DOCUMENTS_H_
#define TRAINER_INTERCHANGE_DOCUMENTS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace gpuctl::trainer {

// Parses an object. `what` names the file in messages. Throws Error(kBadData) when it is not valid,
// no object, nested more than 64 levels deep, or when an object in it has a key twice.
nlohmann::json ParseDocument(const std::string& text, const std::string& what);

// Does the same for a file. Throws Error(kBadData) also when it is missing, no regular file, or
// above `most` bytes; Error(kIo).
nlohmann::json ReadDocument(const std::string& path, uint64_t most);

}  // namespace gpuctl::trainer

#endif  // TRAINER_INTERCHANGE_DOCUMENTS_H_
