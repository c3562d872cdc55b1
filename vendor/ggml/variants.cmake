# Included by ggml's project() call. ggml makes its library wait for every CPU variant that it knows; without those
# dependencies, only the variants that build.py names are built.
function(add_dependencies target)
    if(NOT target STREQUAL "ggml")
        _add_dependencies(${target} ${ARGN})
    endif()
endfunction()
