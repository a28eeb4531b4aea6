# cmake -D SCHEMAS=DIR -D OUTPUT=FILE.cc -P EmbedSchemas.cmake: writes the JSON Schemas of a folder as
# C++, for client/schemas/json_schemas.h.
file(GLOB files "${SCHEMAS}/*.json")
list(SORT files)
set(rows "")
foreach(file ${files})
  get_filename_component(name "${file}" NAME_WE)
  file(READ "${file}" text)
  string(APPEND rows "    {\"${name}\", R\"schema(${text})schema\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "#include \"client/schemas/json_schemas.h\"

namespace gpuctl {

const std::vector<SchemaFile>& SchemaFiles() {
  static const std::vector<SchemaFile>* const files = new std::vector<SchemaFile>{
${rows}  };
  return *files;
}

}  // namespace gpuctl
")
