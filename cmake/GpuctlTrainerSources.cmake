# bin/trainer-src: the trainer's sources without tests and without tokenizers, the headers of
# nlohmann-json, and build.sh, for machines that compile the trainer against their own torch. Made
# without LibTorch, so each gpuctl has it.
set(GPUCTL_TRAINER_SOURCES ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/trainer-src)
set(trainer_root ${PROJECT_SOURCE_DIR}/trainer)

file(GLOB trainer_files RELATIVE ${trainer_root} CONFIGURE_DEPENDS
  ${trainer_root}/*/*.cc ${trainer_root}/*/*.h)
list(FILTER trainer_files EXCLUDE REGEX "_test\\.cc$|^tests/")
# Text is prepared where the data is, and needs PCRE2, which nodes lack.
list(FILTER trainer_files EXCLUDE REGEX
  "^(tokenizer|unicode|jinja|jinja_values|chat|prepare)/|^cli/(text_codec|prepare)\\.cc$")
find_path(GPUCTL_NLOHMANN_DIR nlohmann/json.hpp REQUIRED)
mark_as_advanced(GPUCTL_NLOHMANN_DIR)

set(copies)
set(sources)
set(rooms)
foreach(file ${trainer_files})
  get_filename_component(room ${file} DIRECTORY)
  list(APPEND rooms ${room})
  list(APPEND of_${room} ${trainer_root}/${file})
  list(APPEND sources ${trainer_root}/${file})
endforeach()
list(REMOVE_DUPLICATES rooms)
foreach(room ${rooms})
  list(APPEND copies
    COMMAND ${CMAKE_COMMAND} -E make_directory ${GPUCTL_TRAINER_SOURCES}/trainer/${room}
    COMMAND ${CMAKE_COMMAND} -E copy ${of_${room}} ${GPUCTL_TRAINER_SOURCES}/trainer/${room})
endforeach()
set(stamp ${CMAKE_BINARY_DIR}/trainer-src.stamp)
add_custom_command(OUTPUT ${stamp}
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${GPUCTL_TRAINER_SOURCES}
  ${copies}
  COMMAND ${CMAKE_COMMAND} -E copy_directory
    ${GPUCTL_NLOHMANN_DIR}/nlohmann ${GPUCTL_TRAINER_SOURCES}/include/nlohmann
  COMMAND ${CMAKE_COMMAND} -E copy
    ${trainer_root}/build.sh ${trainer_root}/third_party.txt ${GPUCTL_TRAINER_SOURCES}
  COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
  DEPENDS ${sources} ${trainer_root}/build.sh ${trainer_root}/third_party.txt
    ${PROJECT_SOURCE_DIR}/cmake/GpuctlTrainerSources.cmake
  COMMENT "Collecting the trainer's sources" VERBATIM)
add_custom_target(gpuctl_trainer_sources ALL DEPENDS ${stamp})
if(TARGET gpuctl)
  add_dependencies(gpuctl gpuctl_trainer_sources)
endif()
install(DIRECTORY ${GPUCTL_TRAINER_SOURCES} DESTINATION libexec/gpuctl USE_SOURCE_PERMISSIONS)
