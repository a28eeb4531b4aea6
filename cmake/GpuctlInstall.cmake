# cmake --install: gpuctl, what it sends to nodes, man pages, completions, documents. The packages of
# GpuctlPackage.cmake are made of the same.
set(GPUCTL_NODE_PROGRAMS ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/node CACHE PATH
  "Folder with the programs for nodes, as deploy/node-programs makes it; installed when it is there")
set(GPUCTL_LIBEXEC libexec/gpuctl)  # gpuctl looks there, beside its own bin

install(TARGETS gpuctl DESTINATION bin)
if(TARGET gpuctl-trainer)
  install(TARGETS gpuctl-trainer DESTINATION bin)
endif()
# The system's own programs: for jobs on this machine, and for nodes of the same kind.
foreach(target gpuctl-agent gpuctl-shim gpuctl-cuda-check)
  if(TARGET ${target})
    install(TARGETS ${target} DESTINATION ${GPUCTL_LIBEXEC})
  endif()
endforeach()
install(DIRECTORY ${GPUCTL_NODE_PROGRAMS}/ DESTINATION ${GPUCTL_LIBEXEC}/node
  USE_SOURCE_PERMISSIONS OPTIONAL)
set(own_platform linux-${CMAKE_SYSTEM_PROCESSOR})
if(GPUCTL_BUILD_NODE)
  install(FILES ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/roots.pem DESTINATION ${GPUCTL_LIBEXEC} OPTIONAL)
elseif(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND EXISTS ${GPUCTL_NODE_PROGRAMS}/${own_platform})
  # Jobs on this machine use the programs of a node with its processor.
  set(links ${CMAKE_BINARY_DIR}/links)
  file(MAKE_DIRECTORY ${links})
  foreach(name gpuctl-agent gpuctl-shim gpuctl-cuda-check)
    file(CREATE_LINK node/${own_platform}/${name} ${links}/${name} SYMBOLIC)
  endforeach()
  file(CREATE_LINK node/roots.pem ${links}/roots.pem SYMBOLIC)
  install(DIRECTORY ${links}/ DESTINATION ${GPUCTL_LIBEXEC})
endif()

install(FILES README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE
  DESTINATION share/doc/gpuctl)
install(DIRECTORY docs DESTINATION share/doc/gpuctl FILES_MATCHING PATTERN *.md
  PATTERN *.json)

# The time of the commit. TIMESTAMP takes it from the environment.
execute_process(COMMAND bash -c "source deploy/version.sh && gpuctl_commit_time ."
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE commit_time OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
set(ENV{SOURCE_DATE_EPOCH} ${commit_time})
string(TIMESTAMP GPUCTL_RFC_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
include(GpuctlPackage)

# Man pages and completions, which gpuctl itself makes. A sanitized gpuctl is not installed.
if(CMAKE_CROSSCOMPILING OR GPUCTL_SANITIZE)
  message(STATUS "No man pages and completions: they need a gpuctl that runs here")
  return()
endif()
set(GPUCTL_PAGES ${CMAKE_BINARY_DIR}/pages)
add_custom_command(OUTPUT ${GPUCTL_PAGES}/man1/gpuctl.1
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${GPUCTL_PAGES}
  COMMAND sh ${PROJECT_SOURCE_DIR}/deploy/pages.sh $<TARGET_FILE:gpuctl> ${GPUCTL_PAGES}
  DEPENDS gpuctl ${PROJECT_SOURCE_DIR}/deploy/pages.sh)
add_custom_target(gpuctl_pages ALL DEPENDS ${GPUCTL_PAGES}/man1/gpuctl.1)
install(DIRECTORY ${GPUCTL_PAGES}/man1 DESTINATION share/man)
install(FILES ${GPUCTL_PAGES}/bash/gpuctl DESTINATION share/bash-completion/completions)
install(FILES ${GPUCTL_PAGES}/zsh/_gpuctl DESTINATION share/zsh/site-functions)
install(FILES ${GPUCTL_PAGES}/fish/gpuctl.fish DESTINATION share/fish/vendor_completions.d)
