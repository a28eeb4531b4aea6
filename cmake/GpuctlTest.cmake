# gpuctl_build_with_label(label target…): adds targets to tests_<label>, which builds what those
# tests run.
function(gpuctl_build_with_label label)
  if(NOT TARGET tests_${label})
    add_custom_target(tests_${label})
  endif()
  add_dependencies(tests_${label} ${ARGN})
endfunction()

# gpuctl_test(NAME x_test LABEL unit SOURCES a_test.cc LIBS lib…): a GoogleTest binary registered
# with ctest as one test. Each binary gets a private temporary directory from the test itself.
#
# ctest starts the tests with the highest COST first. The long ones have their seconds there, those
# that take two processors some more, so that no test runs alone at the end.
function(gpuctl_test)
  cmake_parse_arguments(T "" "NAME;LABEL;TIMEOUT;COST" "SOURCES;LIBS;ENV" ${ARGN})
  if(NOT BUILD_TESTING)
    return()
  endif()
  add_executable(${T_NAME} ${T_SOURCES})
  gpuctl_by_room(${T_NAME})
  gpuctl_compile_fast(${T_NAME})
  gpuctl_use_precompiled(${T_NAME} gpuctl_test_precompiled)
  set_target_properties(${T_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${T_NAME} PRIVATE ${T_LIBS} gpuctl_flags GTest::gmock GTest::gtest_main)
  add_test(NAME ${T_NAME} COMMAND ${T_NAME})
  gpuctl_build_with_label(${T_LABEL} ${T_NAME})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)  # a guard against hanging, no measure of speed
  endif()
  set_tests_properties(${T_NAME} PROPERTIES LABELS "${T_LABEL}" TIMEOUT ${T_TIMEOUT}
    ENVIRONMENT "GPUCTL_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};${T_ENV}")
  if(T_COST)
    set_tests_properties(${T_NAME} PROPERTIES COST ${T_COST})
  endif()
endfunction()
