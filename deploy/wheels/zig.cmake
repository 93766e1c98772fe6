# Compiles for the processor, system and C library of ENCODER_ENGINE_TARGET, such as x86_64-linux-gnu.2.17, with the
# Clang of the PyPI package ziglang. ENCODER_ENGINE_ZIG is its program.
if(CMAKE_CXX_COMPILER_LOADED)
  # CMake's settings for macOS ask for a bundle, on which Zig's linker crashes. This file is read again after them. A
  # library has a name there, the folder of the build unless another is given.
  if(APPLE)
    set(CMAKE_SHARED_MODULE_CREATE_CXX_FLAGS "-shared -install_name @rpath/_native.so")
  endif()
  return()
endif()
set(CMAKE_USER_MAKE_RULES_OVERRIDE_CXX ${CMAKE_CURRENT_LIST_FILE})
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ENCODER_ENGINE_TARGET ENCODER_ENGINE_ZIG)
string(REGEX MATCH "^[^-]+" CMAKE_SYSTEM_PROCESSOR "${ENCODER_ENGINE_TARGET}")
set(CMAKE_SYSTEM_NAME Linux)
if(ENCODER_ENGINE_TARGET MATCHES "macos")
  set(CMAKE_SYSTEM_NAME Darwin)
elseif(ENCODER_ENGINE_TARGET MATCHES "windows")
  set(CMAKE_SYSTEM_NAME Windows)
  set(CMAKE_RC_COMPILER ${ENCODER_ENGINE_ZIG})  # which nothing here needs, and CMake looks for
endif()
set(CMAKE_CXX_COMPILER ${ENCODER_ENGINE_ZIG} c++)
set(CMAKE_CXX_COMPILER_TARGET ${ENCODER_ENGINE_TARGET})
# Zig writes debug information unless told not to. Its linker strips, whatever this machine has.
set(CMAKE_CXX_FLAGS_INIT -g0)
set(CMAKE_MODULE_LINKER_FLAGS_INIT -s)
set(CMAKE_STRIP "" CACHE FILEPATH "")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_CXX_ARCHIVE_CREATE "${ENCODER_ENGINE_ZIG} ar qcD <TARGET> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_FINISH "${ENCODER_ENGINE_ZIG} ranlib <TARGET>")
