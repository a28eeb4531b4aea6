# The page of gpuctl dashboard, as a source file: GPUCTL_PAGE_SOURCE. It is made of
#   GPUCTL_PAGE_DIR, when that is set: what deploy/dashboard-page made before
#   client/dashboard/page/dist, which source archives have
#   client/dashboard/page, by npm and Vite, where node 18 or newer and npm are
# With none of these, and with -DGPUCTL_PAGE=OFF, gpuctl is built without it. -DGPUCTL_PAGE=ON makes it
# an error when there is no page; the default, AUTO, says so and goes on.
set(GPUCTL_PAGE AUTO CACHE STRING "The dashboard's page: ON, OFF, or AUTO for where it can be had")
set_property(CACHE GPUCTL_PAGE PROPERTY STRINGS AUTO ON OFF)
set(GPUCTL_PAGE_DIR "" CACHE PATH "Folder with the dashboard's page, as deploy/dashboard-page makes it")
set(page_source_dir ${PROJECT_SOURCE_DIR}/client/dashboard/page)
set(GPUCTL_PAGE_SOURCE ${CMAKE_CURRENT_BINARY_DIR}/dashboard/built_page.cc)
set(page_made ${GPUCTL_PAGE_DIR})
if(NOT page_made AND EXISTS ${page_source_dir}/dist/page.html.gz)
  set(page_made ${page_source_dir}/dist)
endif()
set(page_from)
set(page_why)
if(NOT GPUCTL_PAGE)
  set(page_why "GPUCTL_PAGE is OFF")
elseif(page_made)
  set(page_from ${page_made})
else()
  find_program(GPUCTL_NODE node)
  find_program(GPUCTL_NPM npm)
  mark_as_advanced(GPUCTL_NODE GPUCTL_NPM)
  if(NOT GPUCTL_NODE OR NOT GPUCTL_NPM)
    set(page_why "node and npm are missing")
  else()
    execute_process(COMMAND ${GPUCTL_NODE} --version OUTPUT_VARIABLE node_version
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX REPLACE "^v" "" node_version "${node_version}")
    if(node_version VERSION_LESS 18)
      set(page_why "node ${node_version} is older than 18")
    endif()
  endif()
endif()
set(embed ${PROJECT_SOURCE_DIR}/cmake/embed_page.cmake)
if(page_why)
  if(GPUCTL_PAGE STREQUAL "ON")
    message(FATAL_ERROR "No page for gpuctl dashboard: ${page_why}. -DGPUCTL_PAGE=OFF builds without")
  endif()
  message(STATUS "No page for gpuctl dashboard: ${page_why}")
  set(page_command ${CMAKE_COMMAND} -DOUT=${GPUCTL_PAGE_SOURCE} -P ${embed})
  set(page_needs)
elseif(page_from)
  set(page_command ${CMAKE_COMMAND} -DFROM=${page_from} -DOUT=${GPUCTL_PAGE_SOURCE} -P ${embed})
  set(page_needs ${page_from}/page.html.gz ${page_from}/page.hashes)
else()
  file(GLOB page_needs CONFIGURE_DEPENDS ${page_source_dir}/src/* ${page_source_dir}/*.js
    ${page_source_dir}/*.json ${page_source_dir}/*.html ${page_source_dir}/.npmrc)
  list(APPEND page_needs ${PROJECT_SOURCE_DIR}/deploy/dashboard-page)
  set(page_command ${CMAKE_COMMAND} -DFROM=${CMAKE_CURRENT_BINARY_DIR}/dashboard/page
    -DMAKE=${PROJECT_SOURCE_DIR}/deploy/dashboard-page -DMUST=${GPUCTL_PAGE}
    -DOUT=${GPUCTL_PAGE_SOURCE} -P ${embed})
endif()
add_custom_command(OUTPUT ${GPUCTL_PAGE_SOURCE}
  COMMAND ${page_command} DEPENDS ${page_needs} ${embed}
  COMMENT "The page of gpuctl dashboard" VERBATIM)
